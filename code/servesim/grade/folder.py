"""Grading a folder of submissions, side by side.

Each file runs in a child process of a worker. What is done is kept beside the output, in
``OUTPUT.done.jsonl``, by the digest of the file and of everything that judges it: the same command
goes on where it was stopped, and grades again only what has changed.
"""

from __future__ import annotations

import csv
import functools
import hashlib
import io
import itertools
import json
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..checks import by_annotation, file_name, instance, maybe, number_from, seed_number
from ..errors import InputError
from ..output import Bar, check_writable, whole_lines, write_whole
from ..sweep import Processes, simulator_digest
from . import isolation, report
from .assignment import Assignment, Case
from .assignments import find
from .hidden import folder_of, hidden_cases, seed_in
from .judge import Judge, Score, refused
from .process import Child, Limits
from .roster import Entry, Submission, cell, days_late, printable, utc
from .source import MOST_BYTES, Refused, check, read

TRIES = 3
"""How often a file is tried whose worker dies, or which was too slow beside others."""

MOST_REASON = 500
"""Characters of a reason in the CSV; the report holds the whole."""

MOST_NAME = 50
"""Characters of a report's name: file systems take no more than 255 bytes, four a character."""


@dataclass(frozen=True)
class Task:
    """How to grade: what a worker needs to know besides the file.

    Attributes
    ----------
    assignment : str
    hidden : str or None
        Folder of the hidden cases.
    seed : int or None
        In place of the one in ``seed.txt``.
    unsafe : bool
        Whether a process that is not sealed will do.
    limits : Limits
    """

    assignment: str
    hidden: str | None = None
    seed: int | None = None
    unsafe: bool = False
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        by_annotation(self)
        maybe(seed_number, seed=self.seed)
        instance(Limits, limits=self.limits)

    def cases(self) -> tuple[Case, ...]:
        """Return the public cases, and the hidden ones if there are any."""
        chosen = find(self.assignment)
        if self.hidden is None:
            return chosen.cases
        return (*chosen.cases, *hidden_cases(chosen, self.hidden, self.seed))

    def digest(self) -> bytes:
        """Return a digest of all that a mark depends on besides the file."""
        known = hashlib.sha256(simulator_digest())
        known.update(repr((self.assignment, asdict(self.limits))).encode())
        if self.hidden is not None:
            place = folder_of(self.hidden, find(self.assignment))
            known.update((place / "hidden.py").read_bytes())
            known.update(str(seed_in(place, self.seed)).encode())
        return known.digest()


@dataclass(frozen=True)
class Graded:
    """What came of one file.

    Attributes
    ----------
    points : dict of str to float
        By rule.
    refused : bool
        Whether the file scores 0 as a whole.
    reason : str
        Why, or where the first rule was broken; empty if nothing was lost.
    text : str
        The whole report.
    slow : bool
        Whether time ran out, which may be the machine's fault.
    """

    points: dict[str, float]
    refused: bool
    reason: str
    text: str
    slow: bool = False

    def __post_init__(self) -> None:
        by_annotation(self)
        instance(dict, points=self.points)
        number_from(0, **self.points)


def way(unsafe: bool) -> isolation.Isolation:
    """Return how a policy is kept apart here.

    Raises
    ------
    InputError
        If it can be sealed by nothing, and that was not accepted; or not even be bounded.
    """
    if not isolation.POSSIBLE:
        raise InputError(
            "Windows cannot bound the time and memory of a policy; grade under Linux: in WSL, or "
            "in a container"
        )
    best = isolation.best()
    if not best.sealed and not unsafe:
        raise InputError(
            "this machine seals no process (neither bwrap nor unshare works), so a policy could "
            "use the network, read the hidden tests and write files; install bubblewrap, run in a "
            "container of its own, or accept it with --unsafe"
        )
    return best


@functools.cache
def _judge(task: Task) -> Judge:
    return Judge(find(task.assignment), task.cases())


def plain(path: Path) -> bool:
    """Tell whether a submission is a file of its own: a link could lead to a solution."""
    return path.is_file() and not path.is_symlink() and not path.parent.is_symlink()


def read_plain(path: str | Path) -> str:
    """Return the text of a submission.

    Raises
    ------
    InputError, Refused
        As `servesim.grade.source.read`, and if it is a link.
    """
    if not plain(Path(path)):
        raise Refused("what was handed in is a link, or no file at all")
    return read(path)


def score(
    path: str | Path, judge: Judge, task: Task, reading: Callable[[str | Path], str] = read_plain
) -> tuple[Score, bytes, bool]:
    """Score one file in a process of its own.

    Parameters
    ----------
    path : str or Path
    judge : Judge
    task : Task
    reading : callable
        Returns the file's text; a student may check a link.

    Returns
    -------
    Score
    bytes
        What the policy printed.
    bool
        Whether it was too slow.
    """
    assignment, name = judge.assignment, Path(path).name
    try:
        text = reading(path)
        check(text, assignment.class_name)
        arguments = (text, name, assignment.class_name, way(task.unsafe), task.limits)
        with Child(*arguments) as child:
            marked = judge.score(child.build, text)
            child.listen()
            forged = forgery(child.output)
            if forged:
                marked = refused(assignment, forged, judge.cases[-1].name)  # or in one before it
            return marked, child.output, child.slow
    except Refused as reason:
        return refused(assignment, str(reason)), b"", False


def forgery(output: bytes) -> str:
    """Say if a policy printed what looks like a result: it would fool no grader that parses."""
    for line in output.splitlines():
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(said, dict) and said.keys() & {"score", "points", "plan", "tests", "refused"}:
            shown = line.decode("utf-8", "replace")[:80]
            return f"the policy prints a result of its own: {shown}"
    return ""


def grade_file(path: str, task: Task) -> Graded:
    """Grade one file; a worker calls this."""
    judge = _judge(task)
    try:
        marked, _, slow = score(path, judge, task)
    except Exception as error:  # a rule that fails on one file must not cost the others
        reason = f"the grader itself failed on this file: {type(error).__name__}: {error}"
        marked, slow = refused(judge.assignment, reason), False
    first = next((str(m.failure or m.note) for m in marked.marks if not m.full), "")
    return Graded(
        {mark.rule.name: mark.points for mark in marked.marks},
        bool(marked.refused),
        cell(" ".join((marked.refused or first).split()))[:MOST_REASON],
        printable(report.score_text(marked, Path(path).name, f"{len(judge.cases)} cases")),
        slow,
    )


# -- the folder ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Terms:
    """When work was due, and what lateness costs.

    Attributes
    ----------
    due : float or None
        Seconds since 1970.
    per_day : float
        Percent of the points for each day begun.
    """

    due: float | None = None
    per_day: float = 0.0

    def __post_init__(self) -> None:
        maybe(number_from, -1e12, 1e12, due=self.due)  # until the year 9999, and longer
        number_from(0, 100, per_day=self.per_day)


def grade(
    students: Sequence[Entry],
    task: Task,
    out: str | Path,
    *,
    terms: Terms = Terms(),
    jobs: int | None = None,
    fresh: bool = False,
    feedback: str | Path | None = None,
) -> list[dict[str, Any]]:
    """Grade what students handed in, and write one row for each.

    Parameters
    ----------
    students : sequence of Entry
    task : Task
    out : str or Path
        The CSV; written whole at the end.
    terms : Terms
    jobs : int, optional
        Processes; by default one for each core.
    fresh : bool
        Forget what was graded before.
    feedback : str or Path, optional
        A folder that gets one report for each student.

    Returns
    -------
    list of dict
        The rows.

    Raises
    ------
    InputError
    """
    assignment, terms = find(task.assignment), terms or Terms()
    task.cases()  # a mistake in them is told now
    way(task.unsafe)
    handed_in = ((*s.earlier, s.counts) for s in students)
    check_writable(out, "--out", (one.path for all_of in handed_in for one in all_of if one))
    wanted = {s.counts.path: _key(s.counts, task.digest()) for s in students if s.counts}
    jobs = min(jobs if jobs is not None else os.cpu_count() or 1, max(1, len(wanted)))
    if jobs < 1:
        raise InputError(f"--jobs must be 1 or more, not {jobs}")
    with _Notes(Path(out), fresh) as notes:
        rules = {rule.name for rule in assignment.rules}
        known = {key for key, graded in notes.done.items() if graded.points.keys() <= rules}
        todo = {key: path for path, key in wanted.items() if key not in known}
        done = len(wanted) - sum(key in todo for key in wanted.values())
        with Bar(len(wanted), "grade", "file", done=done) as bar:
            for key, graded in _side_by_side(todo, task, jobs):
                notes.keep(key, graded)
                bar.update()
        rows = [_row(s, assignment, terms, notes.done, wanted) for s in students]
        if feedback is not None:
            _write_feedback(Path(feedback), students, notes.done, wanted)
    write_whole(Path(out), as_csv(rows))
    return rows


def _key(submission: Submission, made_with: bytes) -> str:
    try:
        with open(submission.path if plain(submission.path) else os.devnull, "rb") as stream:
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(f"{submission.path}: {error.strerror or error}") from None
    return hashlib.sha256(made_with + os.fsencode(submission.path.name) + b"\0" + data).hexdigest()


def _side_by_side(
    todo: dict[str, Path], task: Task, jobs: int
) -> Generator[tuple[str, Graded], None, None]:
    """Yield what came of each file. Those that lost their worker, or were slow, go again alone."""
    if not todo:
        return
    left, kept = dict(todo), {}
    with Processes(min(jobs, len(todo))) as pool:
        for attempt in range(TRIES):
            again: dict[str, Path] = {}
            for key, outcome in _as_they_finish(pool, left, task, 1 if attempt else jobs):
                if isinstance(outcome, Exception):
                    again[key] = left[key]
                    kept[key] = outcome
                elif outcome.slow and not attempt:
                    again[key] = left[key]
                else:
                    yield key, outcome
            left = again
            if not left:
                return
    rules = [rule.name for rule in find(task.assignment).rules]
    for key in left:
        reason = f"the grader's worker died {TRIES} times on this file: {kept[key]}"
        yield key, Graded(dict.fromkeys(rules, 0.0), True, reason, reason)


def _as_they_finish(
    pool: Processes, todo: dict[str, Path], task: Task, at_once: int
) -> Generator[tuple[str, Graded | Exception], None, None]:
    queue = iter(todo.items())
    running: dict[Future[Graded], str] = {}
    try:
        while True:
            for key, path in itertools.islice(queue, at_once - len(running)):
                running[pool.submit(grade_file, os.path.abspath(path), task)] = key
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                key = running.pop(future)
                try:
                    yield key, future.result()
                except BrokenProcessPool as error:
                    yield key, error
    finally:
        for future in running:
            future.cancel()


def _row(
    entry: Entry,
    assignment: Assignment,
    terms: Terms,
    done: dict[str, Graded],
    wanted: dict[Path, str],
) -> dict[str, Any]:
    rules = [rule.name for rule in assignment.rules]
    row: dict[str, Any] = {"student": entry.student, "file": "", "submitted": ""}
    row |= {"status": "missing", "score": "0", "of": report.number(assignment.points)}
    row |= {"late_days": 0, "attempts": 0, **dict.fromkeys(rules, "0")}
    row["reason"] = "nothing was handed in"
    if entry.counts is None:
        return row
    graded = done[wanted[entry.counts.path]]
    late = days_late(entry.counts, terms.due)
    keeps = max(0.0, 1 - late * terms.per_day / 100)
    row["file"] = cell(_shown(entry.counts))
    row["submitted"] = utc(entry.counts.when)
    row["status"] = "refused" if graded.refused else "graded"
    if not entry.listed:
        row["status"] += ", not on the roster"
    row["score"] = report.number(round(sum(graded.points.values()) * keeps, 2))
    row["late_days"], row["attempts"] = late, 1 + len(entry.earlier)
    row |= {name: report.number(points) for name, points in graded.points.items()}
    row["reason"] = graded.reason
    return row


def _shown(submission: Submission) -> str:
    inside = submission.path.parent.name == submission.name
    return f"{submission.name}/{submission.path.name}" if inside else submission.path.name


def _write_feedback(
    folder: Path, students: Iterable[Entry], done: dict[str, Graded], wanted: dict[Path, str]
) -> None:
    file_name(**{"--feedback": folder})
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--feedback {folder}: {error.strerror or error}") from None
    taken: set[str] = set()
    for s in students:
        text = "nothing was handed in"
        if s.counts is not None:
            text = done[wanted[s.counts.path]].text
        name = "".join(c if c.isalnum() or c in "-_.@ " else "_" for c in s.student)
        name = name[:MOST_NAME]
        if name.casefold() in taken:  # as "a/b" and "a_b"
            name += f" ({len(taken) + 1})"
        taken.add(name.casefold())
        write_whole(folder / f"{name}.txt", text + "\n")


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as the text of a CSV file."""
    file = io.StringIO()
    writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def read_csv(file: str | Path) -> dict[str, dict[str, str]]:
    """Return the rows of an earlier CSV by student; none if there is no such file."""
    file_name(file=file)
    try:
        with Path(file).open(encoding="utf-8", newline="") as lines:
            return {row["student"]: row for row in csv.DictReader(lines)}
    except (OSError, KeyError, UnicodeDecodeError, csv.Error):
        return {}


def differences(
    before: dict[str, dict[str, str]], rows: Sequence[dict[str, Any]], rules: Sequence[str]
) -> list[str]:
    """Say whose score has changed since an earlier grading, and by which rules."""
    lines = []
    now = {str(row["student"]): row for row in rows}
    for student, row in now.items():
        old = before.get(student)
        if old is None:
            lines.append(f"{student}: new, {row['score']}")
            continue
        changed = [f"{r} {old.get(r, '-')} -> {row[r]}" for r in rules if old.get(r) != row[r]]
        if old["score"] != row["score"] or changed:
            why = f" ({', '.join(changed)})" if changed else ""
            lines.append(f"{student}: {old['score']} -> {row['score']}{why}")
    lines += [f"{student}: gone, was {before[student]['score']}" for student in before.keys() - now]
    return lines


class _Notes:
    """What is graded, kept beside the output as it comes: one line each."""

    def __init__(self, out: Path, fresh: bool) -> None:
        self._path = out.with_name(out.name + ".done.jsonl")
        self.done: dict[str, Graded] = {}
        try:
            if fresh:
                self._path.unlink(missing_ok=True)
            self._read()
            self._lines = self._path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror or error}") from None

    def _read(self) -> None:
        for number, line in enumerate(whole_lines(self._path), 1):
            try:
                note = json.loads(line)
                key = note.pop("key")
                self.done[key] = Graded(**note)
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                raise InputError(
                    f"{self._path}, line {number}: is not what a grading leaves; name another "
                    "--out, or forget what was graded with --fresh"
                ) from None

    def keep(self, key: str, graded: Graded) -> None:
        """Write down what came of a file."""
        self.done[key] = graded
        try:
            print(json.dumps({"key": key, **asdict(graded)}), file=self._lines, flush=True)
        except OSError as error:
            raise InputError(f"{self._path}: {error.strerror or error}") from None

    def __enter__(self) -> _Notes:
        return self

    def __exit__(self, *exc: object) -> None:
        with suppress(OSError):  # what could not be written would be tried once more
            self._lines.close()
