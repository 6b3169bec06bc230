"""Admission and preemption under a block budget: who has to go, and who may come in."""

from __future__ import annotations

from ... import workload
from ...engine import SupportsPlan
from ...kv import KVCache, blocks_for
from ...metrics import Result
from ...policies import VLLM
from ...request import Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run
from .common import (
    everyone_moves,
    in_order_of,
    makespan_bound_ms,
    makespan_ms,
    moments,
    requests_of,
)

CACHE = KVCache(blocks=40, block_size=16)
SMALL = KVCache(blocks=12, block_size=4)

STEADY = ((16, 120), (20, 160))
ANSWERS = ((16, 60), (100, 300))
"""Ranges of prompt and output lengths."""


def requests(
    n: int, rate: float, lengths: tuple[tuple[int, int], tuple[int, int]], seed: int
) -> tuple[Request, ...]:
    """Draw Poisson arrivals with prompts and outputs from two ranges."""
    prompt, output = lengths
    return tuple(workload.poisson(n=n, rate=rate, prompt=prompt, output=output, seed=seed))


def crowd(n: int, prompt: int, shortest: int) -> tuple[Request, ...]:
    """Return many short prompts at almost the same time, whose answers are much longer."""
    return tuple(Request(i, i * 1_000_000, prompt, shortest + 13 * i % 50) for i in range(n))


GIANTS = (Request(0, 0, 300, 330), Request(1, 10_000_000, 300, 330))
"""Either of them fills the cache in the end."""

FEW = (
    *(Request(i, i * 1_000_000, 6 + i, 18 - i) for i in range(5)),
    *(Request(i, 1_000_000_000, 20, 4) for i in range(5, 8)),
)
"""Five requests for `SMALL`, to follow with a pencil, and three more when those are done."""

BACK = tuple(
    Request(i, at * 1_000_000, prompt, output)
    for i, (at, prompt, output) in enumerate(((0, 2, 2), (0, 17, 27), (0, 18, 18), (80, 11, 17)))
)
"""For `SMALL`. Somebody who was thrown out comes back behind one that arrived later."""


def _blocks(run: Run) -> Failure | None:
    """Check nothing more than the engine does (see `Invariant.engine_rules`)."""
    del run
    return None


def _room(run: Run) -> Failure | None:
    """Check that the head of the queue does not wait beside a cache that is mostly free."""
    asked, size, blocks = requests_of(run), run.case.kv.block_size, run.case.kv.usable
    for moment in moments(run):
        step, free = moment.step, moment.step.free_blocks[1]
        if not step.waiting or step.preempted or 4 * free < 3 * blocks:
            continue
        head = min(step.waiting, key=lambda rid: (asked[rid].arrival_ns, rid))
        need = blocks_for(asked[head].prompt_len + moment.produced.get(head, 0), size)
        if 2 * need <= free:
            detail = f"it waits for {need} blocks while {free} of {blocks} stay free"
            return run.fail(detail, step.index, head)
    return None


def _alone(run: Run) -> Failure | None:
    """Check that somebody shares the cache: of one at a time nobody is ever thrown out."""
    return _room(run) if all(len(step.running) < 2 for step in run.steps) else None


def _oldest(run: Run) -> Failure | None:
    """Check that of those in the batch whoever came first stays."""
    asked = requests_of(run)
    for moment in moments(run):
        if len(moment.batch) > 1:
            oldest = min(moment.batch, key=lambda rid: (asked[rid].arrival_ns, rid))
            if oldest in moment.step.preempted:
                lost = moment.computed[oldest]
                detail = (
                    f"it came first of the {len(moment.batch)} in the batch and is thrown out, "
                    f"with {lost} tokens in the cache"
                )
                return run.fail(detail, moment.step.index, oldest)
    return _alone(run)


def _needed(run: Run) -> Failure | None:
    """Check that at each preemption the batch lacked blocks for its next tokens."""
    size = run.case.kv.block_size
    for moment in moments(run):
        step, computed = moment.step, moment.computed
        tokens = dict.fromkeys(moment.batch, 0) | dict.fromkeys(step.preempted, 1)
        tokens |= {s.id: s.tokens for s in step.scheduled if s.id in tokens}
        held = {rid: blocks_for(computed[rid], size) for rid in tokens}
        need = {rid: blocks_for(computed[rid] + n, size) - held[rid] for rid, n in tokens.items()}
        free, lacking = step.free_blocks[0], sum(need.values())
        for rid in step.preempted:
            if lacking <= free:
                detail = (
                    f"it is thrown out although those in the batch need {lacking} more blocks and "
                    f"{free} are free"
                )
                return run.fail(detail, step.index, rid)
            free, lacking = free + held[rid], lacking - need[rid]
    return _alone(run)


def _computed(result: Result) -> float:
    return sum(s.tokens for step in result.step_records for s in step.scheduled)


def _computed_bound(case: Case) -> float:
    """Return the tokens to compute if nothing is computed twice; the last one never is."""
    return sum(r.prompt_len + r.output_len - 1 for r in case.requests)


def _reference(case: Case) -> SupportsPlan:
    """Return vLLM's rules, with a tenth of the cache kept free at the door."""
    del case
    return VLLM(watermark=0.1)


BUSY = ("steady", "long answers", "crowd")

ASSIGNMENT = Assignment(
    name="preemption",
    title="Who has to go?",
    task=(
        "Write a policy for a small KV cache in which blocks are bought on demand. When they run "
        "out somebody has to go. Who, and who may come in before that?"
    ),
    rules=(
        Invariant(
            "blocks",
            10,
            "No plan asks for more blocks than are free.",
            "view.blocks_needed(r, tokens) says what a request must buy. Add it up, newcomers too.",
            _blocks,
            engine_rules=("blocks",),
        ),
        Invariant(
            "serve",
            5,
            "Every step computes something for everyone in the batch.",
            "Whoever finds no block must not just stand there and hold its own.",
            everyone_moves,
        ),
        Invariant(
            "room",
            15,
            "Nobody waits at the head of the queue while three quarters of the cache stay free, "
            "and twice what it needs.",
            "Blocks that lie free serve nobody. Who could join, and what would it have to buy?",
            _room,
        ),
        Invariant(
            "oldest",
            15,
            "Of those in the batch, whoever arrived first is not thrown out.",
            "If the oldest always gets on, it finishes, and then the next one is the oldest.",
            _oldest,
        ),
        Invariant(
            "needed",
            15,
            "Somebody is thrown out only if the batch lacks blocks for its next tokens, and never "
            "to let somebody in.",
            "After each victim, add up again what the others need.",
            _needed,
        ),
        Invariant(
            "order",
            10,
            "Nobody joins before one that arrived earlier and waits.",
            "Whoever was thrown out waits as well, and has its place by its arrival.",
            in_order_of(lambda r: None),
        ),
        Performance(
            "speed",
            15,
            "The makespan is about that of vLLM's rules.",
            "How many requests run on average? Blocks that lie free serve nobody.",
            makespan_ms,
            makespan_bound_ms,
            cases=BUSY,
            full_at=2.0,
            none_at=4.0,
        ),
        Performance(
            "waste",
            15,
            "Not many more tokens are computed than under vLLM's rules.",
            "Everyone in the batch will want more blocks soon. Think of that at the door.",
            _computed,
            _computed_bound,
            unit="tokens",
            cases=BUSY,
            full_at=1.3,
            none_at=2.0,
        ),
    ),
    cases=(
        Case("few", FEW, kv=SMALL),
        Case("back", BACK, kv=SMALL),
        Case("giants", GIANTS, kv=CACHE),
        Case("steady", requests(40, 5.0, STEADY, seed=1), kv=CACHE),
        Case("long answers", requests(24, 3.0, ANSWERS, seed=2), kv=CACHE),
        Case("crowd", crowd(30, 14, 60), kv=CACHE),
    ),
    reference=_reference,
    hours=4.0,
)
