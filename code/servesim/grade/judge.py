"""Running the cases and judging the rules."""

from __future__ import annotations

import os
from bdb import BdbQuit
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..engine import Engine, SupportsPlan
from ..errors import PlanError, PolicyError, said, students_place, without_frames_above
from ..plan import Plan, View
from .assignment import Assignment, Case, Failure, FileRule, Invariant, Performance, Rule, Run
from .load import MODULE, NoClassError, asks_for_lengths, load
from .source import Refused

Maker = Callable[[Case], SupportsPlan]
"""Builds a fresh policy for a case."""


@dataclass(frozen=True)
class Mark:
    """What a rule earned.

    Attributes
    ----------
    rule : Invariant, Performance or FileRule
    points : float
    failure : Failure or None
        Where it was broken; None if it was not, and for a performance rule.
    note : str
        A performance rule's figures.
    """

    rule: Rule
    points: float
    failure: Failure | None = None
    note: str = ""

    @property
    def full(self) -> bool:
        """True if nothing was lost."""
        return self.points >= self.rule.points


@dataclass(frozen=True)
class Score:
    """What a submission earned.

    Attributes
    ----------
    assignment : Assignment
    marks : tuple of Mark
    refused : str
        Why it scores 0 as a whole; empty if it was judged.
    runs : int
        Simulated runs that it took.
    refused_in : str
        Of one that was refused while it ran: the case.
    """

    assignment: Assignment
    marks: tuple[Mark, ...]
    refused: str = ""
    runs: int = 0
    refused_in: str = ""

    @property
    def points(self) -> float:
        """Points earned, to a hundredth."""
        return round(sum(mark.points for mark in self.marks), 2)

    @property
    def full(self) -> bool:
        """True if no point was lost."""
        return all(mark.full for mark in self.marks)

    @property
    def hint(self) -> str:
        """What to look at next: the hint of the first rule that lost something."""
        lost = [mark.rule for mark in self.marks if not mark.full]
        if not lost:
            return ""
        if len(lost) == 1 and isinstance(lost[0], FileRule) and lost[0].last_hint:
            return lost[0].last_hint
        return lost[0].hint


class StudentError(Exception):
    """An exception of a student's own code in another process, as it was told.

    Attributes
    ----------
    said : str
        Its type and text.
    place : str
        " at FILE, line N".
    trace : str
        The student's traceback.
    request : int or None
        The request that the code was looking at.
    """

    def __init__(self, said: str, place: str, trace: str, request: int | None) -> None:
        super().__init__(said)
        self.said, self.place = str(said), str(place)
        self.trace, self.request = str(trace), request


def refused(assignment: Assignment, reason: str, case: str = "") -> Score:
    """Return the score of a submission that is not judged, and in which case that came out."""
    marks = tuple(Mark(rule, 0.0) for rule in assignment.rules)
    return Score(assignment, marks, reason, refused_in=case)


class Judge:
    """Judges policies by an assignment's rules.

    Parameters
    ----------
    assignment : Assignment
    cases : iterable of Case, optional
        The public ones, if not given.

    Attributes
    ----------
    runs : int
        Simulated runs so far, the reference's included.
    """

    def __init__(self, assignment: Assignment, cases: Iterable[Case] | None = None) -> None:
        self.assignment = assignment
        self.cases = tuple(assignment.cases if cases is None else cases)
        self.runs = 0
        self._references: dict[str, Run] = {}

    def score(self, make: Maker, text: str = "") -> Score:
        """Run every case and judge every rule.

        Parameters
        ----------
        make : callable
            Builds the policy for a case.
        text : str
            The file that was handed in.
        """
        before, runs = self.runs, []
        for case in self.cases:
            try:
                runs.append(self.run(case, make))
            except Refused as reason:
                return refused(self.assignment, str(reason), case.name)
        marks = tuple(self.mark(rule, runs, text) for rule in self.assignment.rules)
        return Score(self.assignment, marks, runs=self.runs - before)

    def run(self, case: Case, make: Maker) -> Run:
        """Run one case, to its end or to where it breaks off.

        Raises
        ------
        Refused
            If the policy does not even load, or misbehaves.
        """
        self.runs += 1
        return run(case, make)

    def reference(self, case: Case) -> Run:
        """Return the reference's run of a case."""
        if case.name not in self._references:
            self._references[case.name] = self.run(case, self.assignment.reference)
        return self._references[case.name]

    def mark(self, rule: Rule, runs: Iterable[Run], text: str = "") -> Mark:
        """Judge one rule, by the runs of its cases or by the file's text."""
        if isinstance(rule, FileRule):
            self.runs += rule.runs
            failure = rule.check(text)
            return Mark(rule, 0.0 if failure else float(rule.points), failure)
        runs = [run for run in runs if rule in self.assignment.rules_of(run.case)]
        if isinstance(rule, Invariant):
            found = (self.failure(rule, run) for run in runs)
            failure = next((f for f in found if f is not None), None)
            return Mark(rule, 0.0 if failure or not runs else float(rule.points), failure)
        shares = [self._share(rule, run) for run in runs]
        share = sum(share for share, _ in shares) / len(shares) if shares else 0.0
        return Mark(rule, round(rule.points * share, 2), note="; ".join(n for _, n in shares))

    def failure(self, rule: Invariant, run: Run) -> Failure | None:
        """Return where a run breaks a rule, if it does."""
        if run.stopped is not None:
            owners = [
                r
                for r in self.assignment.rules_of(run.case)
                if isinstance(r, Invariant) and run.stopped.kind in r.engine_rules
            ]
            if rule in owners or not owners or not run.result.count("finished"):
                return run.stopped
        return rule.check(run)

    def _share(self, rule: Performance, run: Run) -> tuple[float, str]:
        if run.stopped is not None:
            return 0.0, f"{run.case.name}: the run broke off"
        value, bound = rule.measure(run.result), rule.bound(run.case)
        other = rule.measure(self.reference(run.case).result)
        assert other is not None
        share = rule.share(value, other, bound)
        told = "no value" if value is None else f"{value:,.2f} {rule.unit}"
        return share, (
            f"{run.case.name}: {told}, reference {other:,.2f}, "
            f"bound {bound:,.2f}: {100 * share:.0f} % of the points"
        )


def run(case: Case, make: Maker) -> Run:
    """Run one case, to its end or to where it breaks off (see `Judge.run`)."""
    stopped = None
    policy: SupportsPlan
    try:
        policy = make(case)
    except PolicyError as error:
        stopped, policy = _raised(case, error), _Nothing()
    engine = Engine(
        case.requests,
        policy,
        cost=case.cost,
        kv=case.kv,
        never_fits=case.never_fits,
        on_stall="record" if case.may_stall else "error",
        max_steps=case.max_steps,
        record_steps=True,
    )
    if stopped is None:
        stopped = _go(engine, case)
    return Run(case, engine.result(), stopped)


def _go(engine: Engine, case: Case) -> Failure | None:
    """Run an engine; say why it broke off, if it did."""
    try:
        result = engine.run()
    except PlanError as error:
        return _broken(case, error)
    except PolicyError as error:
        if isinstance(error.__cause__, Refused):
            raise error.__cause__ from None
        if isinstance(error.__cause__, PlanError):  # told by the child
            return _broken(case, error.__cause__)
        return _raised(case, error)
    if result.outcome == "max_steps":
        detail = f"the run is not over after {case.max_steps} steps"
        return Failure(case.name, detail, case.max_steps, None, "steps")
    return None


def _broken(case: Case, error: PlanError) -> Failure:
    detail = f"the engine refuses the plan, rule '{error.rule}': {error.detail}"
    return Failure(case.name, detail, error.step, error.request, error.rule)


def _raised(case: Case, error: PolicyError) -> Failure:
    """Return the failure of a case in which the student's own code failed."""
    cause = error.__cause__
    assert cause is not None
    if isinstance(cause, BdbQuit):
        raise KeyboardInterrupt from None  # `q` in the debugger is no fault of the policy
    if isinstance(cause, StudentError):
        detail = f"{error.method} raised {cause.said}{cause.place}"
        where = (error.step, cause.request)
        return Failure(case.name, detail, *where, "exception", cause.trace)
    detail = f"{error.method} raised {said(cause)}{students_place(cause)}"
    trace = "\n".join(error.lines()[:-2])
    return Failure(case.name, detail, error.step, error.request, "exception", trace)


class _Nothing:
    """Stands in for a policy that could not be built."""

    def plan(self, view: View) -> Plan:
        return Plan()


def serving(plan_of: Callable[[View], Any]) -> Callable[[View], Any]:
    """Return a `plan` that turns nobody away: most rules hold where nobody is left to serve."""

    def plan(view: View) -> Any:
        made = plan_of(view)
        if isinstance(made, Plan) and made.rejected:
            first = made.rejected[0] if isinstance(made.rejected, list) else None
            detail = "it is turned away; in an assignment everybody has to be served"
            raise PlanError(view.step, first, "rejected", detail)
        return made

    return plan


class Student:
    """A student's policy in this process.

    Only its `plan` reaches the engine, which therefore tells it no more than anyone else.
    """

    def __init__(self, policy: Any) -> None:
        self.plan = serving(policy.plan)
        if asks := asks_for_lengths(policy):
            raise Refused(asks)

    def __deepcopy__(self, memo: object) -> Student:
        return self  # it is fresh already, and may hold what cannot be copied

    def __repr__(self) -> str:
        return type(self).__name__


def maker(text: str, file: str, class_name: str) -> Maker:
    """Return what builds a student's policy in this process.

    `print` and the debugger work in it, and nothing holds it back.
    """
    file = os.path.abspath(file)

    def make(case: Case) -> SupportsPlan:
        try:
            kind = load(text, file, class_name)
        except NoClassError as error:
            raise Refused(str(error)) from None
        except (Exception, SystemExit) as error:
            cause = without_frames_above(error, file)
            raise Refused(str(PolicyError(class_name, None, None, cause))) from None
        try:
            policy = kind(**case.options)
        except (Exception, SystemExit) as error:
            cause = without_frames_above(error, file)
            raise PolicyError(class_name, None, None, cause, "__init__") from error
        # As errors and reports call it, and none of ours: Ctrl-C then names the student's line.
        named: type[Student] = type(class_name, (Student,), {"__module__": MODULE})
        return named(policy)

    return make
