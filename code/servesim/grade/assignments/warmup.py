"""Warm-up: serve in order of arrival, with so many slots."""

from __future__ import annotations

from statistics import fmean

from ... import workload
from ...cost import Work
from ...engine import SupportsPlan
from ...metrics import Result
from ...policies import PrefillFirst
from ...request import NS_PER_MS, Request
from ..assignment import Assignment, Case, Failure, Invariant, Performance, Run


def _served(run: Run) -> Failure | None:
    """Check that every request was served to its end."""
    for r in run.result.records:
        if r.status != "finished":
            return run.fail(f"it is {r.status} at the end of the run", request=r.request.id)
    return None


def _slots(run: Run) -> Failure | None:
    """Check that the batch is never larger than allowed."""
    slots = run.case.options["slots"]
    for step in run.steps:
        if len(step.running) > slots:
            detail = f"{len(step.running)} requests are in the batch, {slots} slots are allowed"
            return run.fail(detail, step.index, step.running[slots])
    return None


def _order(run: Run) -> Failure | None:
    """Check that nobody starts before one that arrived earlier."""
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


def _ttft(result: Result) -> float | None:
    return result.ttft_ms.mean


def _ttft_bound(case: Case) -> float:
    """Return the mean TTFT if everyone were alone: its own prompt in one step."""
    alone = (Work(r.prompt_len, 0, 0, r.prompt_len**2, r.prompt_len) for r in case.requests)
    return fmean(case.cost.price_ns(work) for work in alone) / NS_PER_MS


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
            _served,
        ),
        Invariant(
            "slots",
            30,
            "At most `slots` requests are in the batch.",
            "Count view.running and those that you let in together.",
            _slots,
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
            _ttft,
            _ttft_bound,
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
