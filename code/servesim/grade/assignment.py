"""What an assignment is: cases to run a policy on, and rules that its runs must keep.

Everything here is data and small functions. Running, shrinking, isolating and reporting are the
grader's work, so that an assignment is one short module (see `servesim.grade`).
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from .. import checks
from ..checks import by_annotation, instance, list_of, method, one_of, whole_from
from ..cost import OPT_13B_A100, Cost
from ..engine import SupportsPlan
from ..errors import InputError
from ..kv import KVCache
from ..ledger import Record
from ..metrics import Result
from ..request import Request
from ..trace import StepRecord

MOST_RUNS = 10
"""Simulated runs that a student's first answer may take."""


@dataclass(frozen=True)
class Case:
    """One workload, and the server that it runs on.

    Parameters
    ----------
    name : str
        Unique in an assignment. A hidden case is named after the public one whose rules it is
        judged by: ``"burst#1"`` is judged as ``"burst"`` is.
    requests : tuple of Request
    options : mapping
        What the policy's class is built with: ``{"slots": 4}`` gives ``Policy(slots=4)``.
    cost : Cost
    kv : KVCache
    never_fits : {"error", "reject", "try"}
        As in `servesim.simulate`. With "error" such a request is a mistake of the case.
    may_stall : bool
        True: a run that ends with nothing more to schedule is an outcome and not a failure.
    max_steps : int
        A run that takes more is broken off: the policy goes round in circles.
    """

    name: str
    requests: tuple[Request, ...]
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    cost: Cost = OPT_13B_A100
    kv: KVCache = field(default_factory=KVCache)
    never_fits: Literal["error", "reject", "try"] = "error"
    may_stall: bool = False
    max_steps: int = 20_000

    def __post_init__(self) -> None:
        by_annotation(self)
        object.__setattr__(self, "requests", tuple(list_of(Request, "requests", self.requests)))
        instance(Mapping, options=self.options)
        instance(KVCache, kv=self.kv)
        method("price_ns", cost=self.cost)
        one_of(("error", "reject", "try"), never_fits=self.never_fits)
        whole_from(1, max_steps=self.max_steps)

    @property
    def family(self) -> str:
        """Name of the public case whose rules it is judged by."""
        return self.name.partition("#")[0]


@dataclass(frozen=True)
class Failure:
    """Where a rule was broken, in one sentence.

    Attributes
    ----------
    case : str
    detail : str
        What happened and what the rule allows, with the numbers.
    step, request : int or None
    kind : str
        Why a run broke off: a rule of `servesim.audit`, or "exception", "steps", "process";
        empty if it ran to its end.
    trace : str
        Of an exception: the student's traceback.
    """

    case: str
    detail: str
    step: int | None = None
    request: int | None = None
    kind: str = ""
    trace: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        step = "" if self.step is None else f", step {self.step}"
        request = "" if self.request is None else f", request {self.request}"
        return f"case {self.case}{step}{request}: {self.detail}"


@dataclass(frozen=True)
class Run:
    """A policy's run of one case: what the rules look at.

    Attributes
    ----------
    case : Case
    result : Result
        With step records. Of a run that broke off: what had happened until then.
    stopped : Failure or None
        Why the run broke off; None if it ran to its end.
    """

    case: Case
    result: Result
    stopped: Failure | None = None

    @property
    def steps(self) -> list[StepRecord]:
        """The steps, in order."""
        return self.result.step_records

    @property
    def records(self) -> dict[int, Record]:
        """What became of each request that has arrived, by its id."""
        return {r.request.id: r for r in self.result.records}

    def fail(self, detail: str, step: int | None = None, request: int | None = None) -> Failure:
        """Return a failure of this run: for a rule's `check` to return."""
        return Failure(self.case.name, detail, step, request)


@dataclass(frozen=True)
class Invariant:
    """A rule that every run must keep. All its points, or none.

    Parameters
    ----------
    name : str
        One word.
    points : float
    demand : str
        What must hold, in one sentence.
    hint : str
        What to look at next, in one sentence; it must not give the answer away.
    check : callable
        Takes a `Run` and returns a `Failure` (made by ``run.fail``), or None if the rule is kept.
    cases : tuple of str
        Names of the public cases that it is judged on; empty for all.
    engine_rules : tuple of str
        Rules of `servesim.audit` that are part of this one. A run that breaks off by one of them
        loses these points only: the other invariants are judged on what came before, if any
        request was finished by then. Otherwise a run that breaks off keeps no rule of its case.
    """

    name: str
    points: float
    demand: str
    hint: str
    check: Callable[[Run], Failure | None]
    cases: tuple[str, ...] = ()
    engine_rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        by_annotation(self)


@dataclass(frozen=True)
class Performance:
    """A rule that gives points by how good a run is, in simulated time.

    With the lower bound ``B``, the reference run's value ``R`` and the student's ``m``, the
    *excess* is ``(m - B) / (R - B)``: 0 at the bound, 1 at the reference. All points are given up
    to `full_at`, none from `none_at` on, and in between they fall in a straight line. Of several
    cases the mean counts.

    Parameters
    ----------
    name, points, demand, hint, cases
        As in `Invariant`.
    measure : callable
        Takes a run's `Result` and returns the value, or None if it has none (no points).
    bound : callable
        Takes a `Case` and returns a value that no policy can beat.
    unit : str
        Of the value, for the report.
    higher_is_better : bool
        True for throughput or goodput; `bound` is then an upper bound.
    full_at, none_at : float
        Excess up to which all points are given, and from which on none are.
    """

    name: str
    points: float
    demand: str
    hint: str
    measure: Callable[[Result], float | None]
    bound: Callable[[Case], float]
    unit: str = "ms"
    cases: tuple[str, ...] = ()
    higher_is_better: bool = False
    full_at: float = 1.0
    none_at: float = 2.0

    def __post_init__(self) -> None:
        by_annotation(self)

    def share(self, value: float | None, reference: float, bound: float) -> float:
        """Return which share of the points a value earns, from 0 to 1."""
        if value is None:
            return 0.0
        way = -1 if self.higher_is_better else 1
        room, excess = way * (reference - bound), way * (value - bound)
        if excess <= self.full_at * room:
            return 1.0
        if room <= 0:
            return 0.0  # the reference is as good as can be
        return max(0.0, (self.none_at - excess / room) / (self.none_at - self.full_at))


@dataclass(frozen=True)
class FileRule:
    """A rule about the text of the student's file, judged without running any of it.

    For what is handed in beside the policy: a workload, or a written answer. All its points, or
    none.

    Parameters
    ----------
    name, points, demand, hint
        As in `Invariant`.
    check : callable
        Takes the file's text and returns a `Failure`, or None if the rule is kept. It is called
        in the grader's own process, so it must not execute the text: see `literal`.
    runs : int
        Simulated runs that a check takes, of the assignment's own policies.
    last_hint : str
        The hint if all other rules are kept: then the policy is no longer what to look at. Empty
        for `hint`.
    """

    name: str
    points: float
    demand: str
    hint: str
    check: Callable[[str], Failure | None]
    runs: int = 0
    last_hint: str = ""

    def __post_init__(self) -> None:
        by_annotation(self)


def literal(text: str, name: str) -> object:
    """Return the value that a file gives to a global name, without running the file.

    Raises
    ------
    InputError
        If the name gets no value, or one that is more than a literal.
    """
    checks.text(text=text, name=name)
    value: ast.expr | None = None
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the file that sets {name} cannot be read as Python: {error}") from None
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == name for t in targets):
                value = node.value
    if value is None:
        raise InputError(f"the file sets no {name}: write `{name} = ...` at its left margin")
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, RecursionError, MemoryError):
        raise InputError(
            f"{name} in line {value.lineno} must be written out: numbers, texts, lists and "
            "tuples, nothing that has to be computed"
        ) from None


Rule = Invariant | Performance | FileRule


@dataclass(frozen=True)
class Assignment:
    """A policy to write, and how it is judged.

    Parameters
    ----------
    name : str
        As on the command line, and of the folders ``assignments/NAME``, ``instructor/NAME``.
    title : str
    task : str
        What to write, in one or two sentences.
    rules : tuple of Invariant, Performance and FileRule
        In the order in which a student should get them right: the first that is lost gives the
        next hint.
    cases : tuple of Case
        The public tests.
    reference : callable
        Takes a `Case` and returns a policy whose run students see beside their own, and which
        `Performance` compares with. It is public: a shipped policy, or one that knows more than
        a student's may (the output lengths, say).
    class_name : str
        What the student's class is called.
    hours : float
        How long it should take.

    Raises
    ------
    InputError
        If names are used twice, a rule names an unknown case, or the public tests need more than
        `MOST_RUNS` runs.
    """

    name: str
    title: str
    task: str
    rules: tuple[Rule, ...]
    cases: tuple[Case, ...]
    reference: Callable[[Case], SupportsPlan]
    class_name: str = "Policy"
    hours: float = 2.0

    def __post_init__(self) -> None:
        by_annotation(self)
        list_of((Invariant, Performance, FileRule), "rules", self.rules)
        list_of(Case, "cases", self.cases)
        known = [case.name for case in self.cases]
        for kind, names in (("case", known), ("rule", [rule.name for rule in self.rules])):
            if len(set(names)) < len(names) or not names:
                raise InputError(f"assignment {self.name}: give each {kind} a name of its own")
        for rule in self.rules:
            named = () if isinstance(rule, FileRule) else rule.cases
            if odd := [name for name in named if name not in known]:
                raise InputError(f"assignment {self.name}, rule {rule.name}: no case {odd[0]!r}")
        if self.runs > MOST_RUNS:
            raise InputError(
                f"assignment {self.name}: its public tests take {self.runs} runs, at most "
                f"{MOST_RUNS} are allowed; use fewer cases"
            )

    @property
    def points(self) -> float:
        """Points of all rules together."""
        return sum(rule.points for rule in self.rules)

    @property
    def runs(self) -> int:
        """Simulated runs that the public tests take, the reference's included."""
        compared = [case for case in self.cases if self.compares(case)]
        own = sum(rule.runs for rule in self.rules if isinstance(rule, FileRule))
        return len(self.cases) + len(compared) + own

    def rules_of(self, case: Case) -> list[Invariant | Performance]:
        """Return the rules that a case is judged by."""
        of_runs = (rule for rule in self.rules if not isinstance(rule, FileRule))
        return [rule for rule in of_runs if not rule.cases or case.family in rule.cases]

    def compares(self, case: Case) -> bool:
        """Tell whether a case needs the reference's run."""
        return any(isinstance(rule, Performance) for rule in self.rules_of(case))
