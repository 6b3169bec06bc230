"""Checking one file: what students do, on the command line and in a notebook."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import report
from .assignment import Assignment, Case, Failure, FileRule, Invariant
from .assignments import find
from .judge import Judge, Maker, Mark, Score, maker, refused
from .report import Counterexample
from .shrink import shrink
from .source import Refused, read
from .source import check as check_source


@dataclass(frozen=True)
class Report:
    """What `check` found. Shows as text in a terminal, and with pictures in a notebook.

    Attributes
    ----------
    file : str
    score : Score
    counterexample : Counterexample or None
        A small workload that breaks the first rule that was lost, if one was.
    where : str
        Where the policy ran.
    """

    file: str
    score: Score
    counterexample: Counterexample | None
    where: str

    def __repr__(self) -> str:
        parts = [report.score_text(self.score, self.file, self.where)]
        if self.counterexample is not None:
            parts.append(report.counterexample_text(self.counterexample))
        return "\n\n".join(parts)

    def _repr_html_(self) -> str:
        return report.html_part(self.score, self.file, self.where, self.counterexample)


def check(file: str | Path, assignment: str | Assignment) -> Report:
    """Run the public tests on a file.

    The policy runs in this process: what it prints is seen, and a breakpoint stops in it. Grades
    are given by ``python -m servesim.grade grade``, which keeps it apart.

    Parameters
    ----------
    file : str or Path
    assignment : str or Assignment

    Raises
    ------
    InputError
        If there is no such file or assignment.
    """
    chosen = assignment if isinstance(assignment, Assignment) else find(assignment)
    judge = Judge(chosen)
    score, make = first_answer(judge, file)
    example = None if make is None else counterexample(judge, score, make)
    return Report(str(file), score, example, where(score))


def where(score: Score) -> str:
    """Say where the policy ran, and how much that took."""
    place = "this page" if sys.platform == "emscripten" else "this process"
    runs = f"public tests, {score.runs} simulated runs"
    return f"{runs}; the policy runs in {place}, and is not kept apart"


def first_answer(judge: Judge, file: str | Path) -> tuple[Score, Maker | None]:
    """Score a file; also return what builds its policy, unless the file was refused."""
    name = judge.assignment.class_name
    try:
        text = read(file)
        check_source(text, name)
    except Refused as reason:
        return refused(judge.assignment, str(reason)), None
    make = maker(text, str(file), name)
    score = judge.score(make, text)
    return score, None if score.refused else make


def counterexample(judge: Judge, score: Score, make: Maker) -> Counterexample | None:
    """Find a small workload that breaks the first invariant that was lost.

    None before a student has found what an earlier rule asks of the file: in a bug lab that is
    such a workload.
    """
    for mark in score.marks:
        if isinstance(mark.rule, FileRule) and not mark.full:
            return None
        if isinstance(mark.rule, Invariant) and mark.failure is not None:
            return _smaller(judge, mark, mark.rule, mark.failure, make)
    return None


def _smaller(
    judge: Judge, mark: Mark, rule: Invariant, failure: Failure, make: Maker
) -> Counterexample | None:
    case = next(case for case in judge.cases if case.name == failure.case)

    def again(smaller: Case) -> Failure | None:
        found = judge.failure(rule, judge.run(smaller, make))
        return found if found is not None and _alike(found, failure) else None

    with quiet():
        small = shrink(case, failure, again)
        yours = judge.run(small.case, make)
        if not yours.steps and failure.kind == "exception":
            return None  # it raised before there was anything to see
        reference = judge.run(small.case, judge.assignment.reference)
    return Counterexample(mark, small, len(case.requests), yours, reference)


def _alike(one: Failure, other: Failure) -> bool:
    """Tell whether two failures of a rule are of one kind; exceptions must be of one line."""
    if one.kind != other.kind:
        return False
    return one.kind != "exception" or _place(one) == _place(other)


def _place(failure: Failure) -> str:
    """Return where an exception was raised."""
    return failure.detail.rpartition(" at ")[2]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Run a student's policy a few hundred times without its output and its breakpoints."""
    hook, pdb = sys.breakpointhook, sys.modules.get("pdb")
    trace = getattr(pdb, "set_trace", None)

    def go_on(*args: object, **kwargs: object) -> None:
        return None

    sys.breakpointhook = go_on
    if pdb is not None:
        pdb.set_trace = go_on  # type: ignore[attr-defined]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        sys.breakpointhook = hook
        if pdb is not None:
            pdb.set_trace = trace  # type: ignore[attr-defined]
