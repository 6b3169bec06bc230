"""Bug lab: blocks are lost whenever an answer ends early, until nobody is let in any more.

Reduced from vllm-metal's issue 479 (July 2026): admission counts for itself what is free, the
count is not what the cache says, and requests wait for room in a cache that is empty.
"""

from __future__ import annotations

from ... import workload
from ...engine import SupportsPlan
from ...kv import KVCache, blocks_for
from ...plan import Plan, View
from ...policies import Continuous
from ...request import Progress, Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run
from .common import everyone_served, in_order_of, makespan_bound_ms, makespan_ms, requests_of
from .lab_never_fits import Reserves
from .labs import MOST_REQUESTS, by_hand, finds_the_fault

LONGEST = 128
"""No answer has more tokens: the server cuts it there."""

CACHE = KVCache(blocks=32, block_size=16)


class OwnBooks:
    """First come, first served; keeps its own books of the blocks that are promised.

    Parameters
    ----------
    longest : int
        Tokens of the longest answer.
    """

    def __init__(self, longest: int) -> None:
        self.longest = longest
        self.free: int | None = None
        self.held: dict[int, int] = {}

    def room(self, view: View, r: Progress) -> int:
        """Return the blocks for a prompt and its longest answer."""
        return blocks_for(r.prompt_len + self.longest, view.block_size)

    def plan(self, view: View) -> Plan:
        """Settle with those who have left, and let in whoever has room."""
        if self.free is None:
            self.free = view.total_blocks
        running = {r.id: r.blocks for r in view.running}
        for rid in [rid for rid in self.held if rid not in running]:
            self.free += self.held.pop(rid)
        self.held.update(running)
        batch = list(view.running)
        for r in view.waiting:
            if self.room(view, r) > self.free:
                break
            self.free -= self.room(view, r)
            self.held[r.id] = self.room(view, r)
            batch.append(r)
        return Plan([(r.id, r.missing) for r in batch])


def draw(n: int, output: tuple[int, int], seed: int) -> tuple[Request, ...]:
    """Draw requests whose answers have so many tokens."""
    return tuple(workload.poisson(n=n, rate=6.0, prompt=(16, 160), output=output, seed=seed))


FEW = by_hand((0, 60, 3), (0, 60, 3), (10, 60, 128), (200, 60, 100), (200, 60, 100), (200, 60, 9))
WHOLE = by_hand((0, 40, 3), (0, 50, 3), (300, 384, 5))
"""The last one is promised the whole cache."""


def _stops(run: Run) -> Failure | None:
    """Check that the run comes to its end."""
    return run.stopped


def _promise(run: Run) -> Failure | None:
    """Check that the longest answers of all in the batch would fit."""
    asked, size, blocks = requests_of(run), run.case.kv.block_size, run.case.kv.usable
    longest = run.case.options["longest"]
    for step in run.steps:
        room = {rid: blocks_for(asked[rid].prompt_len + longest, size) for rid in step.running}
        if sum(room.values()) > blocks:
            last = step.running[-1]
            detail = (
                f"with it {len(room)} requests are in the batch, and their longest answers would "
                f"take {sum(room.values())} of {blocks} blocks"
            )
            return run.fail(detail, step.index, last)
    return None


def _faulty(case: Case) -> SupportsPlan:
    return OwnBooks(case.options["longest"])


def _reference(case: Case) -> SupportsPlan:
    """Return continuous batching that is told how long each answer will be."""
    del case
    return Continuous()


def server(name: str, requests: tuple[Request, ...]) -> Case:
    """Return a case on this lab's server."""
    return Case(name, requests, {"longest": LONGEST}, kv=CACHE, max_steps=10_000)


ASSIGNMENT = Assignment(
    name="lab-leak",
    title="Bug lab: the blocks that never come back",
    task=(
        "After some time requests wait for room although the cache is empty. Find a workload of "
        f"at most {MOST_REQUESTS} requests that shows it, and mend the policy."
    ),
    rules=(
        finds_the_fault(
            30,
            "The policy keeps its own books. Follow self.free through the life of one request "
            "whose answer is short.",
            server("find", ()),
            _faulty,
            lambda case: Reserves(case.options["longest"]),
            _stops,
        ),
        Invariant(
            "served",
            20,
            "Every request is served to its end.",
            "What a request took from the books when it joined has to come back when it leaves.",
            everyone_served,
        ),
        Invariant(
            "room",
            10,
            "The longest answers of all that are in the batch would fit the cache together.",
            "The free blocks of the cache are not all to be had: some are promised.",
            _promise,
            cases=("few", "early", "late"),
            engine_rules=("blocks",),
        ),
        Invariant(
            "order",
            5,
            "Nobody joins before one that arrived earlier and waits.",
            "If the head of the queue has no room, those behind it wait as well.",
            in_order_of(lambda r: None),
            cases=("early", "late"),
        ),
        Performance(
            "speed",
            35,
            "The makespan is not much above that of a policy that knows each answer's length.",
            "Are as many in the batch as the promise allows, to the last block?",
            makespan_ms,
            makespan_bound_ms,
            cases=("late",),
            full_at=2.0,
            none_at=3.0,
        ),
    ),
    cases=(
        server("few", FEW),
        server("whole", WHOLE),
        server("early", draw(30, (2, 40), seed=6)),
        server("late", draw(24, (70, 128), seed=7)),
    ),
    reference=_reference,
    hours=2.0,
)
