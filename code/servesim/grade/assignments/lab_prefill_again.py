"""Bug lab: a request is thrown out, comes back too early, and computes its prompt again and again.

Reduced from vLLM's issue 25538 (September 2025): admission asks for blocks for the next chunk
only, so that a long prompt comes back as soon as a chunk fits, and is thrown out before its end.
"""

from __future__ import annotations

from collections import Counter

from ... import workload
from ...engine import SupportsPlan
from ...kv import KVCache
from ...metrics import Result
from ...plan import Plan, View
from ...policies import VLLM
from ...request import Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run
from .common import everyone_decodes, in_order_of, makespan_bound_ms, makespan_ms, moments
from .labs import MOST_REQUESTS, by_hand, finds_the_fault

CACHE = KVCache(blocks=32, block_size=16)
BUDGET = 64

MANY = 5
"""Thrown out so often without a token in between, a request is caught in the fault of the lab."""


class ByTheChunk:
    """A token budget, blocks on demand, and the last to join goes when they run out.

    Parameters
    ----------
    budget : int
        Tokens in a step.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget

    def plan(self, view: View) -> Plan:
        """Serve those who run, then let in from the head of the queue."""
        plan, left, free = Plan(), self.budget, view.free_blocks
        batch = list(view.running)
        for r in list(batch):
            tokens = min(r.missing, left)
            while r in batch and view.blocks_needed(r, tokens) > free:
                victim = batch.pop()
                plan.preempted.append(victim.id)
                free += victim.blocks
            if r in batch and tokens:
                plan.scheduled.append((r.id, tokens))
                left, free = left - tokens, free - view.blocks_needed(r, tokens)
        for r in view.waiting:
            tokens = min(r.missing, left)
            need = view.blocks_needed(r, tokens)
            if plan.preempted or not tokens or need > free:
                break
            plan.scheduled.append((r.id, tokens))
            left, free = left - tokens, free - need
        return plan


def busy(n: int, seed: int) -> tuple[Request, ...]:
    """Draw requests with prompts of a few chunks."""
    return tuple(workload.poisson(n=n, rate=4.0, prompt=(40, 260), output=(20, 120), seed=seed))


def thrown_out_in_vain(run: Run, times: int) -> Failure | None:
    """Check that nobody is thrown out so often without a token in between."""
    in_a_row: Counter[int] = Counter()
    lost: Counter[int] = Counter()
    for moment in moments(run):
        for rid in moment.step.preempted:
            in_a_row[rid] += 1
            lost[rid] += moment.computed.get(rid, 0)
            if in_a_row[rid] >= times:
                detail = (
                    f"it is thrown out {in_a_row[rid]} times without a token in between; "
                    f"{lost[rid]} tokens were computed for nothing"
                )
                return run.fail(detail, moment.step.index, rid)
        for s in moment.step.scheduled:
            if s.sampled:
                in_a_row[s.id] = lost[s.id] = 0
    return None


def _again(run: Run) -> Failure | None:
    return thrown_out_in_vain(run, 2)


def _caught(run: Run) -> Failure | None:
    return thrown_out_in_vain(run, MANY)


def _unmended(run: Run) -> Failure | None:
    """Check that the policy is not as it came: that alone earns nothing."""
    return _caught(run) if run.case.family == "again" else None


def _order(run: Run) -> Failure | None:
    return in_order_of(lambda r: None)(run) or _unmended(run)


def _decodes(run: Run) -> Failure | None:
    return everyone_decodes(run) or _unmended(run)


def _makespan_ms(result: Result) -> float | None:
    """Return the makespan; None if somebody was thrown out as often as only the fault does it."""
    if max(r.preemptions for r in result.records) >= 2 * MANY:
        return None
    return makespan_ms(result)


def _faulty(case: Case) -> SupportsPlan:
    return ByTheChunk(case.options["budget"])


def _reference(case: Case) -> SupportsPlan:
    """Return vLLM's rules of a later release, with some blocks kept free at the door."""
    return VLLM(max_num_batched_tokens=case.options["budget"], watermark=0.1)


def server(name: str, requests: tuple[Request, ...]) -> Case:
    """Return a case on this lab's server."""
    return Case(name, requests, {"budget": BUDGET}, kv=CACHE, max_steps=5_000)


AGAIN = by_hand((0, 250, 200), (500, 300, 20), (600, 40, 20))
BACK = by_hand((0, 160, 120), (100, 150, 120), (200, 90, 60), (2500, 260, 20))
"""Here somebody who has produced many tokens has to come back."""

MEANWHILE = by_hand((0, 55, 68), (10, 20, 90), (20, 30, 30), (30, 33, 66), (300, 275, 10))
"""Here the others buy blocks while the last prompt is computed, chunk by chunk."""

ASSIGNMENT = Assignment(
    name="lab-prefill-again",
    title="Bug lab: the prompt that is computed again and again",
    task=(
        "Under pressure the server is busy and gets nowhere: the same prompt is computed over and "
        f"over. Find a workload of at most {MOST_REQUESTS} requests that shows it, and mend the "
        "policy."
    ),
    rules=(
        finds_the_fault(
            30,
            f"You need somebody who is thrown out {MANY} times without a token in between. Who "
            "takes the blocks that its prompt would need?",
            server("find", ()),
            _faulty,
            _reference,
            _caught,
        ),
        Invariant(
            "again",
            20,
            "Nobody is thrown out twice without a token in between.",
            "A chunk that fits is of no use if the rest does not. Who else buys blocks meanwhile?",
            _again,
        ),
        Invariant(
            "order",
            5,
            "Nobody joins before one that arrived earlier and waits.",
            "Whoever was thrown out keeps its place at the head of the queue.",
            _order,
            cases=("again", "busy"),
        ),
        Invariant(
            "decodes",
            10,
            "Everyone that decodes gets its token in every step, or is thrown out.",
            "To hold blocks and stand still helps nobody.",
            _decodes,
            cases=("again", "busy"),
        ),
        Performance(
            "speed",
            35,
            "The makespan is about that of vLLM's rules.",
            "How many run at the same time? Not everybody has to wait because one has to.",
            _makespan_ms,
            makespan_bound_ms,
            cases=("busy",),
            full_at=1.7,
            none_at=2.4,
        ),
    ),
    cases=(
        server("again", AGAIN),
        server("back", BACK),
        server("meanwhile", MEANWHILE),
        server("busy", busy(24, seed=5)),
    ),
    reference=_reference,
    hours=2.5,
)
