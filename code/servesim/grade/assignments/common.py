"""What several assignments look at: who joined, who was thrown out, what was computed when.

The checks here are made to be used as ``Invariant.check``. Each tells the first place where its
rule is broken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import fmean

from ...cost import Affine, Work
from ...metrics import Result
from ...request import NS_PER_MS, Request
from ...trace import StepRecord
from ..assignment import Case, Failure, Run


def ms(time_ns: float) -> str:
    """Write a time in milliseconds."""
    return f"{time_ns / NS_PER_MS:,.0f} ms"


def requests_of(run: Run) -> dict[int, Request]:
    """Return the requests of a run's case by their ids."""
    return {r.id: r for r in run.case.requests}


def earlier(a: Request, b: Request) -> bool:
    """Tell whether `a` came before `b`; of two that came together, neither did."""
    return a.arrival_ns < b.arrival_ns


@dataclass
class Moment:
    """A step, and what the records before it tell about its beginning.

    Attributes
    ----------
    step : StepRecord
    batch : list of int
        Who was in the batch when the policy was asked, in order of joining.
    joined : list of int
        Who joined it in this step.
    computed : dict of int to int
        Tokens in the cache before the step, of everyone who has started.
    produced : dict of int to int
        Tokens sampled before the step.
    """

    step: StepRecord
    batch: list[int]
    joined: list[int]
    computed: dict[int, int] = field(default_factory=dict)
    produced: dict[int, int] = field(default_factory=dict)


def moments(run: Run) -> Iterator[Moment]:
    """Go through the steps of a run. The dictionaries are the same ones all the time."""
    batch: list[int] = []
    computed: dict[int, int] = {}
    produced: dict[int, int] = {}
    for step in run.steps:
        stay = [rid for rid in batch if rid not in step.preempted]
        joined = [rid for rid in step.running if rid not in stay]
        yield Moment(step, batch, joined, computed, produced)
        for rid in step.preempted:
            computed[rid] = 0
        for rid, tokens, sampled, _ in step.scheduled:
            computed[rid] = computed.get(rid, 0) + tokens
            produced[rid] = produced.get(rid, 0) + sampled
        batch = [rid for rid in step.running if rid not in step.finished]


# -- what performance is measured by -------------------------------------------------------------


def makespan_ms(result: Result) -> float:
    """Return how long a run takes, from the first arrival to the last token."""
    return result.makespan_ns / NS_PER_MS


def makespan_bound_ms(case: Case) -> float:
    """Return a makespan that no policy beats."""
    assert isinstance(case.cost, Affine)
    return case.cost.lower_bound(case.requests, case.kv) / NS_PER_MS


def mean_ttft_ms(result: Result) -> float | None:
    """Return the mean time to the first token."""
    return result.ttft_ms.mean


def mean_ttft_bound_ms(case: Case) -> float:
    """Return the mean TTFT if everyone were alone: its own prompt in one step."""
    alone = (Work(r.prompt_len, 0, 0, r.prompt_len**2, r.prompt_len) for r in case.requests)
    return fmean(case.cost.price_ns(work) for work in alone) / NS_PER_MS


# -- rules --------------------------------------------------------------------------------------


def at_most_slots(run: Run) -> Failure | None:
    """Check that the batch never holds more requests than there are slots."""
    slots = run.case.options["slots"]
    for step in run.steps:
        if len(step.running) > slots:
            detail = f"it is number {slots + 1} in a batch that has {slots} slots"
            return run.fail(detail, step.index, step.running[slots])
    return None


def everyone_served(run: Run) -> Failure | None:
    """Check that everyone is served to its end; a run that broke off has its own reason."""
    if run.stopped:
        return None
    for record in run.result.records:
        if record.status != "finished":
            detail = f"it is {record.status} when the run ends"
            return run.fail(detail, request=record.request.id)
    return None


def nobody_thrown_out(run: Run) -> Failure | None:
    """Check that nobody is preempted."""
    for moment in moments(run):
        for rid in moment.step.preempted:
            tokens = moment.computed.get(rid, 0)
            detail = f"it is thrown out, and {tokens} tokens have to be computed again"
            return run.fail(detail, moment.step.index, rid)
    return None


def everyone_moves(run: Run) -> Failure | None:
    """Check that each step computes something for everyone in the batch."""
    for step in run.steps:
        moving = {s.id for s in step.scheduled}
        for rid in step.running:
            if rid not in moving:
                detail = (
                    f"it is in the batch and gets no token, while {len(moving)} others get theirs"
                )
                return run.fail(detail, step.index, rid)
    return None


def everyone_decodes(run: Run) -> Failure | None:
    """Check that everyone that decodes gets its token in every step."""
    for moment in moments(run):
        moving = {s.id for s in moment.step.scheduled}
        for rid in moment.batch:
            stays = rid not in moment.step.preempted
            if stays and moment.produced.get(rid) and rid not in moving:
                served = moment.step.work.decodes
                detail = f"it decodes and gets no token, while {served} others get theirs"
                return run.fail(detail, moment.step.index, rid)
    return None


def in_order_of(kind: Callable[[Request], object]) -> Callable[[Run], Failure | None]:
    """Make a check that of requests of one kind the first to come is the first to join.

    Whoever is thrown out in a step need not join again in it.
    """

    def check(run: Run) -> Failure | None:
        asked = requests_of(run)
        for moment in moments(run):
            for rid in moment.joined:
                for other in moment.step.waiting:
                    passed = earlier(asked[other], asked[rid])
                    same = kind(asked[other]) == kind(asked[rid])
                    if passed and same and other not in moment.step.preempted:
                        gap = ms(asked[rid].arrival_ns - asked[other].arrival_ns)
                        detail = f"it joins while request {other} waits, which came {gap} before it"
                        return run.fail(detail, moment.step.index, rid)
        return None

    return check
