"""The students' copy of the repository: everything but solutions and hidden tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path

from .. import checks
from ..checks import file_name, maybe
from ..errors import InputError
from .assignments import NAMES

BEGIN = re.compile(r"^\s*# BEGIN SOLUTION\s*$")
END = re.compile(r"^\s*# END SOLUTION\s*$")
STARTER = re.compile(r"^(\s*)# STARTER: ?(.*)$")

SECRET = "instructor"
"""Folder of solutions and hidden tests."""

TESTS = ("tests/grading", "tests/test_grade", "tests/test_assignments")
"""Beginnings of the names of tests that need solutions."""

RUN = 3
"""Lines of a solution in a row that give it away."""

WORKFLOW = """\
# Checks every assignment after each push (GitHub Actions, GitHub Classroom). On any other CI run
# the last line: it needs Python 3.11 or newer and nothing else.
name: check
on: [push, workflow_dispatch]
permissions:
  contents: read
jobs:
  check:
    runs-on: ubuntu-latest
    strategy:
      fail-fast: false
      matrix:
        assignment: [{names}]
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - env:
          PYTHONPATH: code
          NAME: ${{{{ matrix.assignment }}}}
        run: python -m servesim.grade check "assignments/$NAME/policy.py" --assignment "$NAME"
"""


def strip(text: str, named: str) -> str:
    """Return a file without what stands between the markers.

    A comment ``# STARTER: ...`` between them stays, as the line of code that it holds.

    Raises
    ------
    InputError
        If a marker has no partner.
    """
    checks.text(text=text)
    lines, begun = [], 0
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if BEGIN.match(line):
            if begun:
                raise InputError(f"{named}, line {number}: a solution begins inside another")
            begun = number
        elif END.match(line):
            if not begun:
                raise InputError(f"{named}, line {number}: a solution ends that has not begun")
            begun = 0
        elif begun:
            if kept := STARTER.match(line):
                lines.append(f"{kept[1]}{kept[2]}\n")
        else:
            lines.append(line)
    if begun:
        raise InputError(f"{named}, line {begun}: this solution does not end")
    return "".join(lines)


def solutions(text: str) -> list[list[str]]:
    """Return the lines between the markers, one list for each pair, stripped of blanks."""
    found: list[list[str]] = []
    inside = False
    for line in text.splitlines():
        if BEGIN.match(line):
            inside = True
            found.append([])
        elif END.match(line):
            inside = False
        elif inside and not STARTER.match(line) and (bare := "".join(line.split())):
            found[-1].append(bare)
    return found


def release(target: str | Path, root: str | Path | None = None) -> list[str]:
    """Write the students' copy of a repository into a new folder.

    Parameters
    ----------
    target : str or Path
        Must not exist yet, or be empty.
    root : str or Path, optional
        The repository; by default the one that this file lies in.

    Returns
    -------
    list of str
        The files written.

    Raises
    ------
    InputError
        If the folder is taken, this is no repository, or a file would give a solution away.
        Nothing is written then.
    """
    file_name(target=target)
    maybe(file_name, root=root)
    home = Path(root) if root is not None else Path(__file__).resolve().parents[3]
    if not (home / "assignments").is_dir() or not (home / SECRET).is_dir():
        raise InputError(
            f"release needs a checkout of the book with its folders assignments and {SECRET}; "
            f"{home} has none"
        )
    folder = Path(target)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} is there already; name a new folder")
    files = dict(_contents(home, folder))
    for name in NAMES:
        module = f"code/servesim/grade/assignments/{name.replace('-', '_')}.py"
        if module not in files:
            raise InputError(f"{module} is not in the repository yet: git add it, then release")
    _refuse_solutions(files, home)
    part = folder.with_name(folder.name + ".part")
    try:
        shutil.rmtree(part, ignore_errors=True)
        for name, (data, mode) in files.items():
            path = part / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            path.chmod(mode)
        if folder.exists():
            folder.rmdir()
        part.replace(folder)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return sorted(files)


def _contents(home: Path, target: Path) -> Iterator[tuple[str, tuple[bytes, int]]]:
    """Yield what students get: path, bytes, mode."""
    for name in _listed(home, target):
        path = home / name
        if _left_out(name) or path.is_symlink() or not path.is_file():
            continue
        data, mode = path.read_bytes(), 0o755 if os.access(path, os.X_OK) else 0o644
        text = _text(data)
        if text is not None and any(BEGIN.match(line) for line in text.splitlines()):
            data = strip(text, name).encode()
        yield name, (data, mode)
    for name in NAMES:
        solution = home / SECRET / name / "solution.py"
        if solution.is_file():
            starter = strip(solution.read_text(encoding="utf-8"), str(solution))
            yield f"assignments/{name}/policy.py", (starter.encode(), 0o644)
    workflow = WORKFLOW.format(names=", ".join(NAMES))
    yield ".github/workflows/check.yml", (workflow.encode(), 0o644)


def _listed(home: Path, target: Path) -> list[str]:
    """Return the repository's files, as git knows them if it does."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "--cached", "-z"],  # nothing that merely lies around, as grades do
            cwd=home,
            capture_output=True,
            check=True,
        )
        names = [name for name in os.fsdecode(listed.stdout).split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        found = (p for p in home.rglob("*") if p.is_file())
        names = [p.relative_to(home).as_posix() for p in found]
        made = re.compile(r"(^|/)(\.git|\.venv|_build|_vendor|__pycache__|[.\w]*_cache)/")
        names = [name for name in names if not made.search(name)]
    goes_to = target.resolve()
    return sorted(n for n in names if not (home / n).resolve().is_relative_to(goes_to))


def _left_out(name: str) -> bool:
    return name.startswith((f"{SECRET}/", ".github/", ".ci/", *TESTS))


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _refuse_solutions(files: dict[str, tuple[bytes, int]], home: Path) -> None:
    """Refuse to write a file that holds a marker, or lines of a solution in a row.

    Raises
    ------
    InputError
    """
    secret = sorted((home / SECRET).rglob("*.py"))
    given_away: dict[tuple[str, ...], str] = {}
    for path in secret:
        for lines in solutions(path.read_text(encoding="utf-8")):
            size = min(RUN, len(lines))
            for i in range(len(lines) - size + 1):
                piece = tuple(lines[i : i + size])
                if sum(map(len, piece)) >= 40:  # shorter ones are anyone's
                    given_away[piece] = path.relative_to(home).as_posix()
    sizes = {len(piece) for piece in given_away}
    for name, (data, _) in files.items():
        text = _text(data)
        if text is None:
            continue
        bare = [("".join(line.split()), number) for number, line in enumerate(text.splitlines(), 1)]
        bare = [(line, number) for line, number in bare if line]
        for line, number in bare:
            if line in ("#BEGINSOLUTION", "#ENDSOLUTION"):
                raise InputError(
                    f"{name}, line {number}: a marker of a solution is left; remove it"
                )
        for i, piece in _pieces([line for line, _ in bare], sizes):
            if piece in given_away:
                raise InputError(
                    f"{name}, line {bare[i][1]}: these lines stand in the solution "
                    f"{given_away[piece]} too; put them between the markers, or say it otherwise"
                )


def _pieces(lines: list[str], sizes: Iterable[int]) -> Iterator[tuple[int, tuple[str, ...]]]:
    for size in sizes:
        for i in range(len(lines) - size + 1):
            yield i, tuple(lines[i : i + size])
