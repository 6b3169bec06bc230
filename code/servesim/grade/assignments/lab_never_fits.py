"""Bug lab: a request that never fits blocks everyone behind it.

Reduced from vLLM's pull request 1534 (November 2023) and issue 39734 (April 2026): the scheduler
stops at the first waiting request that finds no room, and one that never will is waited for.
"""

from __future__ import annotations

from collections.abc import Collection

from ... import workload
from ...cost import OPT_13B_A100
from ...engine import SupportsPlan
from ...kv import KVCache, blocks_for
from ...metrics import Result
from ...plan import Plan, View
from ...request import NS_PER_MS, Progress, Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run
from .common import earlier, moments, requests_of
from .labs import MOST_REQUESTS, by_hand, finds_the_fault

LONGEST = 64
"""No answer has more tokens: the server cuts it there."""

CACHE = KVCache(blocks=32, block_size=16)


class Reserves:
    """First come, first served, each with room for its longest answer.

    Parameters
    ----------
    longest : int
        Tokens of the longest answer.
    passed_over : collection of int
        Ids of requests that are not even looked at.
    """

    def __init__(self, longest: int, passed_over: Collection[int] = ()) -> None:
        self.longest, self.passed_over = longest, frozenset(passed_over)

    def __repr__(self) -> str:
        return "told whom to pass over" if self.passed_over else "as it came"

    def room(self, view: View, r: Progress) -> int:
        """Return the blocks for a prompt and its longest answer."""
        return blocks_for(r.prompt_len + self.longest, view.block_size)

    def plan(self, view: View) -> Plan:
        """Let in from the head of the queue whoever has room."""
        batch = list(view.running)
        free = view.total_blocks - sum(self.room(view, r) for r in batch)
        for r in view.waiting:
            if r.id in self.passed_over:
                continue
            if self.room(view, r) > free:
                break
            free -= self.room(view, r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch])


def fits(request: Request) -> bool:
    """Tell whether a request could be served if it were alone."""
    return blocks_for(request.prompt_len + LONGEST, CACHE.block_size) <= CACHE.usable


def healthy(n: int, seed: int) -> tuple[Request, ...]:
    """Draw requests that all fit."""
    return tuple(workload.poisson(n=n, rate=6.0, prompt=(16, 160), output=(8, 64), seed=seed))


def _served(run: Run) -> Failure | None:
    """Check that everyone that fits is served to its end."""
    for record in run.result.records:
        r = record.request
        if fits(r) and record.status != "finished":
            ahead = [q for q in run.case.requests if earlier(q, r) and not fits(q)]
            detail = (
                f"it needs {blocks_for(r.prompt_len + LONGEST, CACHE.block_size)} of "
                f"{CACHE.usable} blocks and is never served"
            )
            if ahead:
                detail += (
                    f"; request {ahead[0].id} is ahead of it with {ahead[0].prompt_len} tokens"
                )
            return run.fail(detail, run.steps[-1].index if run.steps else None, r.id)
    return None


def _stuck(run: Run) -> Failure | None:
    """Check that somebody behind a request that never fits is served."""
    for hopeless in (r for r in run.case.requests if not fits(r)):
        behind = [run.records[r.id] for r in run.case.requests if r.id > hopeless.id and fits(r)]
        if behind and not any(record.status == "finished" for record in behind):
            return _served(run)
    return None


def _order(run: Run) -> Failure | None:
    """Check first come, first served among those that fit."""
    asked = requests_of(run)
    for moment in moments(run):
        for rid in moment.joined:
            for other in moment.step.waiting:
                if fits(asked[other]) and earlier(asked[other], asked[rid]):
                    detail = (
                        f"it joins while request {other}, which came before it and fits the cache, "
                        "has to wait for room"
                    )
                    return run.fail(detail, moment.step.index, rid)
    return _stuck(run)


def _untouched(run: Run) -> Failure | None:
    """Check that nothing is computed for a request that cannot be served."""
    asked = requests_of(run)
    for step in run.steps:
        for s in step.scheduled:
            if not fits(asked[s.id]):
                detail = (
                    f"{s.tokens} tokens are computed for it, but its {asked[s.id].prompt_len} "
                    f"prompt tokens and an answer of {LONGEST} never fit {CACHE.usable} blocks"
                )
                return run.fail(detail, step.index, s.id)
    return _stuck(run)


def _last_ms(result: Result) -> float | None:
    """Return when the last request was done; None if one that fits was not."""
    if any(fits(r.request) and r.status != "finished" for r in result.records):
        return None
    return result.makespan_ns / NS_PER_MS


def _bound(case: Case) -> float:
    served = [r for r in case.requests if fits(r)]
    start = case.requests[0].arrival_ns
    least = OPT_13B_A100.lower_bound(served, case.kv) + served[0].arrival_ns - start
    return least / NS_PER_MS


def _faulty(case: Case) -> SupportsPlan:
    return Reserves(case.options["longest"])


def _reference(case: Case) -> SupportsPlan:
    """Return the same policy, told beforehand whom to pass over."""
    hopeless = [r.id for r in case.requests if not fits(r)]
    return Reserves(case.options["longest"], passed_over=hopeless)


def server(name: str, requests: tuple[Request, ...]) -> Case:
    """Return a case on this lab's server, which sees hopeless requests too."""
    return Case(
        name,
        requests,
        {"longest": LONGEST},
        kv=CACHE,
        never_fits="try",
        may_stall=True,
        max_steps=5_000,
    )


STUCK = by_hand(
    *((0, 100, 20), (10, 60, 30), (30, 900, 10), (40, 200, 30), (50, 300, 20), (60, 80, 10))
)
EDGE = by_hand(*((0, 448, 64), (10, 449, 10), (20, 500, 10), (30, 100, 10)))
"""The first needs exactly the whole cache; of the two after it only the prompt fits."""

ASSIGNMENT = Assignment(
    name="lab-never-fits",
    title="Bug lab: the request that never fits",
    task=(
        "The policy works for weeks, then nobody is served any more. Find a workload of at most "
        f"{MOST_REQUESTS} requests that shows it, and mend the policy."
    ),
    rules=(
        finds_the_fault(
            30,
            "What does the loop over view.waiting do at the first request without room? When will "
            "there be room for it?",
            server("find", ()),
            _faulty,
            _reference,
            _served,
        ),
        Invariant(
            "served",
            20,
            "Every request that fits the cache, with an answer of `longest` tokens, is served.",
            "How many blocks would be free if nobody were running?",
            _served,
        ),
        Invariant(
            "order",
            10,
            "Among those that fit, nobody joins before one that arrived earlier.",
            "To have no room now is not the same as never to have any.",
            _order,
            cases=("stuck", "healthy"),
        ),
        Invariant(
            "untouched",
            10,
            "Nothing is computed for a request that can never be served.",
            "Every token for it is lost, and every block it holds is missing elsewhere.",
            _untouched,
            cases=("stuck",),
        ),
        Performance(
            "speed",
            30,
            "Those that fit are done about as early as if the others had never come.",
            "How many run at the same time, compared with the policy as it came?",
            _last_ms,
            _bound,
            cases=("stuck",),
            full_at=1.2,
            none_at=2.0,
        ),
    ),
    cases=(
        server("stuck", STUCK),
        server("edge", EDGE),
        server("healthy", healthy(20, seed=4)),
    ),
    reference=_reference,
    hours=1.5,
)
