"""A token budget that adapts to a target for the P99 of inter-token latency."""

from __future__ import annotations

import random
from dataclasses import replace

from ... import workload
from ...cost import Affine, Cost, Work
from ...engine import SupportsPlan
from ...policies import Chunked
from ...request import NS_PER_MS, Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run
from .common import (
    earlier,
    everyone_decodes,
    mean_ttft_bound_ms,
    mean_ttft_ms,
    moments,
    requests_of,
)

FAST = Affine(base_ms=8, prefill_us=25, decode_us=30, context_ns=50)
MIDDLE = Affine(base_ms=18, prefill_us=90, decode_us=40, context_ns=100)
SLOW = Affine(base_ms=25, prefill_us=250, decode_us=60, context_ns=200)
"""Three price lists (invented). The policy is told neither them nor which one it runs on."""

DEAR = Affine(base_ms=15, prefill_us=100, decode_us=15_000, context_ns=100)
"""On this one, three or four decodes alone take longer than the target (invented)."""

IDLE_STEPS = 10
"""So many steps in a row may leave every prompt untouched."""


def requests(n: int, rate: float, seed: int) -> tuple[Request, ...]:
    """Draw Poisson arrivals; one prompt in seven is long."""
    rng = random.Random(seed)
    drawn = workload.poisson(n=n, rate=rate, prompt=(50, 800), output=(30, 120), seed=seed)
    return tuple(
        replace(r, prompt_len=rng.randint(1500, 4000)) if rng.random() < 1 / 7 else r for r in drawn
    )


def crowd() -> tuple[Request, ...]:
    """Return five short requests at once, and two longer prompts that come while they decode."""
    first = [Request(i, 0, 40, 60 + i) for i in range(5)]
    later = [Request(5 + i, 1500 * NS_PER_MS, 600, 30) for i in range(2)]
    return tuple(first + later)


def _target(run: Run) -> Failure | None:
    """Check the P99 over all gaps between tokens."""
    target, p99 = run.case.options["target_ms"], run.result.itl_ms.percentile(99)
    if p99 is None or p99 <= target:
        return None
    mixed = [s for s in run.steps if s.work.decodes] or run.steps
    worst = max(mixed, key=lambda s: s.cost_ns)
    detail = (
        f"the P99 ITL is {p99:.1f} ms, the target {target} ms; the longest step with decodes took "
        f"{worst.cost_ns / NS_PER_MS:.1f} ms: {worst.work.decodes} decodes beside "
        f"{worst.work.prefill_tokens} prompt tokens"
    )
    prompts = [s.id for s in worst.scheduled if not s.decode]
    return run.fail(detail, worst.index, prompts[0] if prompts else None)


def _order(run: Run) -> Failure | None:
    """Check that a prompt gets tokens only when those before it miss none any more."""
    asked = requests_of(run)
    for moment in moments(run):
        step = moment.step
        got = {s.id: s.tokens for s in step.scheduled if not s.decode}
        for rid in got:
            for other in (*step.running, *step.waiting):
                left = asked[other].prompt_len - moment.computed.get(other, 0) - got.get(other, 0)
                if left > 0 and earlier(asked[other], asked[rid]):
                    detail = (
                        f"it gets {got[rid]} prompt tokens while request {other}, which came "
                        f"first, still misses {left} after the step"
                    )
                    return run.fail(detail, step.index, rid)
    return None


def _progress(run: Run) -> Failure | None:
    """Check that prompts never stand still for long."""
    asked, idle = requests_of(run), 0
    for moment in moments(run):
        step = moment.step
        here = (*step.running, *step.waiting)
        late = [i for i in here if moment.computed.get(i, 0) < asked[i].prompt_len]
        idle = idle + 1 if late and not step.work.prefill_tokens else 0
        if idle > IDLE_STEPS:
            detail = (
                f"no prompt has got a token for {idle} steps, and it has waited for "
                f"{(step.start_ns - asked[late[0]].arrival_ns) / NS_PER_MS:.0f} ms"
            )
            return run.fail(detail, step.index, late[0])
    return None


def largest_budget(cost: Cost, target_ms: float, decodes: int = 10, context: int = 7000) -> int:
    """Return the most prompt tokens beside some decodes for which a step keeps the target."""
    budget = 16
    while cost.price_ns(Work(budget + 16, decodes, context)) <= target_ms * NS_PER_MS:
        budget += 16
    return budget


def _reference(case: Case) -> SupportsPlan:
    """Return a fixed budget, made by one who has read the price list."""
    return Chunked(token_budget=largest_budget(case.cost, case.options["target_ms"]))


ASSIGNMENT = Assignment(
    name="token-budget",
    title="A token budget that finds itself",
    task=(
        "Write a policy that keeps the P99 ITL at `target_ms` or below on a GPU whose prices it "
        "is not told, and no further below than it must."
    ),
    rules=(
        Invariant(
            "decodes",
            10,
            "Everyone that decodes gets its token in every step.",
            "Decodes come first. The budget is for prompts.",
            everyone_decodes,
        ),
        Invariant(
            "order",
            10,
            "A prompt gets tokens only if all that came before it are done after the step.",
            "Give out the budget in order of arrival, and stop when it is used up.",
            _order,
        ),
        Invariant(
            "progress",
            20,
            f"While a prompt is unfinished, no more than {IDLE_STEPS} steps in a row leave every "
            "prompt untouched, even if decodes alone break the target.",
            "How small may your budget become? Can it ever grow again from there?",
            _progress,
            cases=("crowd",),
        ),
        Invariant(
            "target",
            20,
            "The P99 ITL is at most `target_ms`.",
            "view.clock_ns tells how long the last step took. What was in that step?",
            _target,
            cases=("fast", "middle", "slow"),
        ),
        Performance(
            "ttft",
            40,
            "The mean TTFT is near that of a fixed budget chosen by one who knows the prices.",
            "Is the budget as large as the target allows, on the fast GPU too?",
            mean_ttft_ms,
            mean_ttft_bound_ms,
            cases=("fast", "middle", "slow"),
            full_at=3.0,
            none_at=9.0,
        ),
    ),
    cases=(
        Case("fast", requests(40, 13.0, seed=1), {"target_ms": 40}, cost=FAST),
        Case("middle", requests(40, 4.5, seed=2), {"target_ms": 60}, cost=MIDDLE),
        Case("slow", requests(40, 1.7, seed=3), {"target_ms": 60}, cost=SLOW),
        Case("crowd", crowd(), {"target_ms": 60}, cost=DEAR),
    ),
    reference=_reference,
    hours=3.0,
)
