"""By hand, in the chapter on designing a policy: what an order changes, and for whom."""

from __future__ import annotations

import random
from statistics import fmean

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..metrics import Result, jain_index
from ..policies import VLLM, Fair, ShortestFirst
from ..request import NS_PER_MS, Request
from .exercise import Ask, Exercise, drawn, lives, ms, steps

_TITLE = "Four requests of two tenants, one place"
_TENANTS = "aaab"


def orders(seed: int = 0) -> Exercise:
    """Ask for the mean E2E in two orders, and how equal the tenants are half-way."""
    requests = drawn(seed, _draw, _good)
    in_order, shortest, fair = _runs(requests)
    half = _half_ms(requests)
    amounts = [_tokens(run, half) for run in (in_order, shortest, fair)]
    names = [f"r{r.id} of {r.tenant}" for r in requests]
    chart = svg.Chart(svg.Axis("", categories=names), "Output (tokens)", title=_TITLE)
    chart.bars("output", [r.output_len for r in requests])
    picture = svg.figure(
        "orders",
        chart,
        title=_TITLE,
        summary="All four wait at time 0 for a server with one place and steps of 10 ms, one for "
        "each output token. When is each done in the order of their numbers, and when with the "
        "shortest output first (of equals the first in the queue)? Then count, with the "
        "shortest first, the output tokens that each tenant has when half of all are out (rounded "
        "down), and take Jain's index of the two amounts.",
        table=(
            ["request", "output (tokens)"],
            [[name, r.output_len] for name, r in zip(names, requests, strict=True)],
        ),
    )
    worked = svg.figure(
        "orders",
        lives(in_order, "First come, first served"),
        lives(shortest, "Shortest first"),
        lives(fair, "Fair"),
        title=f"{_TITLE}, worked out",
        summary=f"When {half / 10:.0f} tokens are out, first come, first served has given "
        f"{_told(amounts[0])}, shortest first {_told(amounts[1])}, a fair order "
        f"{_told(amounts[2])}.",
        table=steps(in_order=in_order, shortest=shortest, fair=fair),
        share_x=True,
    )
    asks = (
        Ask("Mean E2E, first come", "ms", _mean_ms(in_order)),
        Ask("Mean E2E, shortest first", "ms", _mean_ms(shortest)),
        Ask("Jain's index half-way, shortest first", "", round(jain_index(amounts[1]), 3), 0.006),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    return [Request(i, 0, 1, rng.randint(1, 8), tenant=who) for i, who in enumerate(_TENANTS)]


def _runs(requests: list[Request]) -> list[Result]:
    flat = Affine(base_ms=10)
    policies = VLLM(512, 1), ShortestFirst(512, 1), Fair(512, 1)
    return [simulate(requests, p, cost=flat, record_steps=True) for p in policies]


def _half_ms(requests: list[Request]) -> int:
    return 10 * (sum(r.output_len for r in requests) // 2)


def _tokens(run: Result, until_ms: int) -> list[int]:
    """Return how many output tokens each tenant has by then."""
    until = until_ms * NS_PER_MS
    return [
        sum(t <= until for r in records for t in r.token_times_ns())
        for _, records in sorted(run.by_tenant().items())
    ]


def _told(amounts: list[int]) -> str:
    a, b = amounts
    return f"{a} to a and {b} to b (index {jain_index(amounts):.2f})"


def _mean_ms(run: Result) -> float:
    return fmean(ms(r.e2e_ns or 0) for r in run.records)


def _good(requests: list[Request]) -> bool:
    """Tell whether the shortest first changes the order, and b has something to lose."""
    in_order, shortest, _ = _runs(requests)
    gains = _mean_ms(in_order) - _mean_ms(shortest)
    return gains >= 10 and requests[3].output_len > 1
