"""By hand, in the chapter on continuous batching: the same requests, in groups and step by step."""

from __future__ import annotations

import random

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..metrics import Result
from ..policies import Continuous, Static
from ..request import Request
from .exercise import Ask, Exercise, arrivals, drawn, lives, ms, off_the_steps, request, steps

_TITLE = "Four requests, two slots"


def two_slots(seed: int = 0) -> Exercise:
    """Ask how many steps two slots need under static and under continuous batching."""
    requests = drawn(seed, _draw, _good)
    grouped, joined = _runs(requests)
    picture = svg.figure(
        "two-slots",
        arrivals(requests),
        title=_TITLE,
        summary="Two slots, every step 10 ms; a request with an output of n tokens takes part in "
        "n steps. Work it out twice: in groups of two, which start when both are there, and with "
        "whoever is there joining as soon as a slot is free at the start of a step.",
        table=(
            ["request", "arrives (ms)", "output (tokens)"],
            [[f"r{r.id}", r.arrival_ms, r.output_len] for r in requests],
        ),
    )
    worked = svg.figure(
        "two-slots",
        lives(grouped, "Static batching"),
        lives(joined, "Continuous batching"),
        title=f"{_TITLE}, worked out",
        summary="In groups, a slot whose request is done stays empty until the other one's is. "
        "Step by step, the next in the queue takes it at once.",
        table=steps(static=grouped, continuous=joined),
        share_x=True,
    )
    asks = (
        Ask("Static batching", "steps", grouped.steps),
        Ask("Continuous batching", "steps", joined.steps),
        Ask("TTFT of r3, continuous batching", "ms", ms(joined.records[3].ttft_ns or 0)),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    within = [t for t in range(1, 30) if t % 10]  # a step, not at its end
    times = [0, *sorted(rng.sample(within, 3))]
    return [request(i, t, 8, rng.randint(2, 6)) for i, t in enumerate(times)]


def _runs(requests: list[Request]) -> tuple[Result, Result]:
    ten_ms = Affine(base_ms=10)
    grouped = simulate(requests, Static(2), cost=ten_ms, record_steps=True)
    return grouped, simulate(requests, Continuous(2), cost=ten_ms, record_steps=True)


def _good(requests: list[Request]) -> bool:
    """Tell whether the two differ, and r3 has to wait for a slot."""
    grouped, joined = _runs(requests)
    waits = ms(joined.records[3].ttft_ns or 0) > 20
    return grouped.steps > joined.steps and waits and off_the_steps(requests, joined)
