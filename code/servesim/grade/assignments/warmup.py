"""Warm-up: serve in order of arrival, with so many slots."""

from __future__ import annotations

from ... import workload
from ...engine import SupportsPlan
from ...policies import PrefillFirst
from ...request import Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run
from .common import at_most_slots, everyone_served, mean_ttft_bound_ms, mean_ttft_ms


def _order(run: Run) -> Failure | None:
    """Check that nobody starts before one ahead in the queue, not even if both came together."""
    joined: list[int] = []
    place = {r.id: i for i, r in enumerate(run.case.requests)}
    for step in run.steps:
        for rid in step.running:
            if rid in joined:
                continue
            ahead = [other for other in step.waiting if place[other] < place[rid]]
            if ahead:
                detail = f"it joins the batch while request {ahead[0]}, which came first, waits"
                return run.fail(detail, step.index, rid)
            joined.append(rid)
    return None


def _reference(case: Case) -> SupportsPlan:
    return PrefillFirst(max_running=case.options["slots"])


def _requests(n: int, rate: float, seed: int) -> tuple[Request, ...]:
    return tuple(workload.poisson(n=n, rate=rate, prompt="64|256", output="4-24", seed=seed))


ASSIGNMENT = Assignment(
    name="warmup",
    title="First come, first served",
    task=(
        "Write a policy that serves requests in order of arrival, with at most `slots` of them "
        "in the batch."
    ),
    rules=(
        Invariant(
            "served",
            30,
            "Every request is served to its end.",
            "Give everyone in view.running what it is missing, in every step.",
            everyone_served,
        ),
        Invariant(
            "slots",
            30,
            "At most `slots` requests are in the batch.",
            "Count view.running and those that you let in together.",
            at_most_slots,
        ),
        Invariant(
            "order",
            20,
            "Nobody joins before one that arrived earlier.",
            "view.waiting holds the head of the queue first.",
            _order,
        ),
        Performance(
            "ttft",
            20,
            "The mean TTFT is at most half again as far from the bound as the reference's.",
            "Look for steps in which a slot is free and somebody waits.",
            mean_ttft_ms,
            mean_ttft_bound_ms,
            full_at=1.5,
            none_at=2.5,
            cases=("busy",),
        ),
    ),
    cases=(
        Case("quiet", _requests(8, 1.0, seed=1), {"slots": 4}),
        Case("busy", _requests(20, 12.0, seed=2), {"slots": 4}),
        Case("alone", _requests(6, 6.0, seed=3), {"slots": 1}),
    ),
    reference=_reference,
    hours=0.5,
)
