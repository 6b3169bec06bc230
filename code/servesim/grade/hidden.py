"""Hidden cases, from the folder that only the instructor has."""

from __future__ import annotations

import runpy
from pathlib import Path

from ..checks import file_name, instance, seed_number
from ..errors import InputError
from .assignment import Assignment, Case


def folder_of(folder: str | Path, assignment: Assignment) -> Path:
    """Return where an assignment's hidden files lie: in the folder, or in one of its name.

    Raises
    ------
    InputError
        If there is no ``hidden.py``.
    """
    file_name(hidden=folder)
    instance(Assignment, assignment=assignment)
    for place in (Path(folder) / assignment.name, Path(folder)):
        if (place / "hidden.py").is_file():
            return place
    raise InputError(
        f"--hidden {folder}: there is no hidden.py in it, nor in a folder {assignment.name} of it"
    )


def seed_in(place: Path, given: int | None = None) -> int:
    """Return the seed that was given, or else the number in ``seed.txt``.

    Raises
    ------
    InputError
    """
    if given is not None:
        seed_number(seed=given)
        return given
    path = place / "seed.txt"
    try:
        seed = int(path.read_text(encoding="utf-8-sig"))
        seed_number(**{f"{path}: the seed": seed})
        return seed
    except InputError:
        raise
    except OSError:
        raise InputError(f"{path} does not exist; write a number into it, or give --seed") from None
    except ValueError:
        raise InputError(f"{path}: must hold a whole number, the seed") from None


def hidden_cases(assignment: Assignment, folder: str | Path, seed: int | None) -> list[Case]:
    """Return an assignment's hidden cases.

    Parameters
    ----------
    assignment : Assignment
    folder : str or Path
        Holds ``hidden.py``, with a function ``cases(seed)``, or a folder of the assignment's name
        that does.
    seed : int or None
        In place of the one in ``seed.txt``.

    Raises
    ------
    InputError
        If something is missing, or a case is none.
    """
    place = folder_of(folder, assignment)
    file = place / "hidden.py"
    make = runpy.run_path(str(file)).get("cases")
    if not callable(make):
        raise InputError(f"{file}: there is no function cases(seed)")
    cases = list(make(seed_in(place, seed)))
    known = {case.name for case in assignment.cases}
    seen = set(known)
    for case in cases:
        if not isinstance(case, Case) or case.family not in known:
            name = getattr(case, "name", case)
            raise InputError(f"{file}: {name!r} is no case named after a public one, as busy#1")
        if case.name in seen:
            raise InputError(f"{file}: two cases are called {case.name!r}")
        seen.add(case.name)
    return cases
