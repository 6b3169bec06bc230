"""Which file is whose: submissions, the roster, and when they came."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ..checks import file_name, instance, list_of, maybe, number_from
from ..errors import InputError, brief
from ..reading import lines
from .source import NOTEBOOK

IN_NAME = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T_ -](\d\d)[-:.h]?(\d\d)(?:[-:.m]?(\d\d))?")
"""A time in a file's name, as 2026-10-01T23-59 or 2026-10-01_235900."""

DAY_S = 86_400


@dataclass(frozen=True)
class Submission:
    """One file that was handed in.

    Attributes
    ----------
    name : str
        The file's name without its ending, or the name of the folder that it lies in.
    path : Path
    when : float
        Seconds since 1970: from the name if it holds a time, else when the file was written.
    """

    name: str
    path: Path
    when: float

    @property
    def says_late(self) -> bool:
        """Tell whether the name says so, as the learning platform Canvas writes it."""
        return "LATE" in re.split(r"[_\W]", self.name)


@dataclass(frozen=True)
class Entry:
    """A student, and what counts.

    Attributes
    ----------
    student : str
    counts : Submission or None
        The latest; None if nothing was handed in.
    earlier : tuple of Submission
        Those that were replaced.
    listed : bool
        False for a file of nobody on the roster.
    """

    student: str
    counts: Submission | None = None
    earlier: tuple[Submission, ...] = field(default=())
    listed: bool = True


def submissions(folder: str | Path) -> list[Submission]:
    """Return what lies in a folder: Python files, and folders with one in them.

    A notebook is one, too: it is refused, and that its student should know.

    Raises
    ------
    InputError
        If the folder does not exist, or holds none.
    """
    file_name(submissions=folder)
    root = Path(folder)
    if not root.is_dir():
        raise InputError(f"{root} is not a folder; name the one with the submissions")
    found = []
    for entry in sorted(root.iterdir()):
        if entry.name.startswith((".", "__")):
            continue
        if entry.is_dir():
            if (chosen := counting(entry)) is not None:
                found.append(Submission(entry.name, chosen, _when(entry.name, chosen)))
        elif entry.suffix in (".py", NOTEBOOK):
            found.append(Submission(entry.stem, entry, _when(entry.name, entry)))
    if not found:
        raise InputError(f"{root}: there is no .py file in it, nor a folder with one")
    return found


def counting(folder: Path, pattern: str = "*") -> Path | None:
    """Return the file in a folder that counts: ``policy.py``, or else the first in Python.

    A notebook only where nothing else is: it will be refused by its name.
    """
    files = sorted(folder.glob(f"{pattern}.py")) or sorted(folder.glob(f"{pattern}{NOTEBOOK}"))
    return next((f for f in files if f.name == "policy.py"), files[0] if files else None)


def _when(name: str, path: Path) -> float:
    if match := IN_NAME.search(name):
        try:
            year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
            return datetime(year, month, day, hour, minute, second).astimezone().timestamp()
        except (ValueError, OverflowError):
            pass  # digits that are no date
    return path.lstat().st_mtime


def moment(text: str) -> float:
    """Read a time such as 2026-10-01T23:59, in local time unless it names its zone.

    Raises
    ------
    InputError
    """
    try:
        read = datetime.fromisoformat(text)
        return (read if read.tzinfo else read.astimezone()).timestamp()
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"--due {brief(text)}: write the time as 2026-10-01T23:59") from None


def days_late(submission: Submission, due: float | None) -> int:
    """Return how many days a submission is late, begun ones counted as whole."""
    instance(Submission, submission=submission)
    maybe(number_from, -1e12, 1e12, due=due)
    days = 0 if due is None else max(0, -int((due - submission.when) // DAY_S))
    return max(days, int(submission.says_late))


def utc(when: float) -> str:
    """Return a time as text."""
    return datetime.fromtimestamp(int(when), UTC).isoformat().replace("+00:00", "Z")


def read_roster(file: str | Path) -> dict[str, str]:
    """Read a roster: which name of a file belongs to which student.

    Parameters
    ----------
    file : str or Path
        CSV with a column ``student`` and, if files are not called after the students, a column
        ``file``: what the file's (or folder's) name is, or begins with.

    Returns
    -------
    dict of str to str
        Student by beginning of the name, in the order of the roster.

    Raises
    ------
    InputError
    """
    file_name(**{"--roster": file})
    path = Path(file)
    try:
        with path.open(encoding="utf-8-sig", newline="") as text:
            reader = csv.DictReader(lines(text, f"--roster {path}"), strict=True)
            rows = [(reader.line_num, row) for row in reader]
            columns = list(reader.fieldnames or [])
    except OSError as error:
        raise InputError(f"--roster {path}: {error.strerror or error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"--roster {path}: is not a CSV file in UTF-8 ({error})") from None
    if not rows or "student" not in columns:
        raise InputError(f"--roster {path}: needs a header with `student` (and `file`), and rows")
    for column in ("student", "file"):
        if columns.count(column) > 1:
            raise InputError(f"--roster {path}: column {column!r} is there twice")
    names: dict[str, str] = {}
    for number, row in rows:
        if None in row:
            raise InputError(
                f"--roster {path}, line {number}: has more cells than the header; a name with a "
                "comma stands in quotes"
            )
        student = (row["student"] or "").strip()
        key = ((row.get("file") or "").strip() or student).removesuffix(".py")
        if not student:
            raise InputError(f"--roster {path}, line {number}: the student is missing")
        if "\0" in student + key:
            raise InputError(f"--roster {path}, line {number}: a NUL stands in it")
        if key in names:
            raise InputError(f"--roster {path}, line {number}: {key!r} is listed twice")
        names[key] = student
    return names


def entries(found: Iterable[Submission], roster: dict[str, str] | None) -> list[Entry]:
    """Return every student with what counts of theirs: the latest submission.

    Without a roster each file is a student's own. With one, its students come first, in its
    order, and files of nobody on it last.
    """
    maybe(instance, dict, roster=roster)
    theirs: dict[str, list[Submission]] = {}
    listed: set[str] = set()
    if roster is not None:
        for student in roster.values():
            theirs[student] = []
            listed.add(student)
    for submission in list_of(Submission, "found", found):
        owner = None if roster is None else _owner(submission.name, roster)
        theirs.setdefault(owner or cell(submission.name), []).append(submission)
    made = []
    for student, files in theirs.items():
        files.sort(key=lambda s: (s.path.suffix == ".py", s.when, s.name))
        known = roster is None or student in listed
        made.append(Entry(student, files[-1] if files else None, tuple(files[:-1]), known))
    return made


def printable(text: str) -> str:
    """Return text that any file can hold: what a student wrote may have characters of none."""
    shown = "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text)
    return shown.encode("utf-8", "backslashreplace").decode("utf-8")


def cell(text: str) -> str:
    """Return a student's text for a CSV: no spreadsheet takes it for a formula."""
    text = printable(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def _owner(name: str, roster: dict[str, str]) -> str | None:
    """Return whose a name is: the longest beginning that is listed, up to a whole word."""
    best = ""
    for key in roster:
        begins = name.casefold().startswith(key.casefold())
        ends = not name[len(key) : len(key) + 1].isalnum()
        if begins and ends and len(key) > len(best):
            best = key
    return roster[best] if best else None
