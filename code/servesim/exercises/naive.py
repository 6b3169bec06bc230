"""By hand, in the chapter on naive serving: who waits how long when one is served at a time."""

from __future__ import annotations

import random

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..metrics import Result
from ..policies import Naive
from ..request import Request
from .exercise import Ask, Exercise, arrivals, drawn, lives, ms, request

_TITLE = "Five requests, one at a time"


def waits(seed: int = 0) -> Exercise:
    """Ask for waits, where an output of n tokens takes n steps of 10 ms."""
    requests = drawn(seed, _draw, _good)
    run = _run(requests)
    waited = _waits(run)
    picture = svg.figure(
        "waits",
        arrivals(requests),
        title=_TITLE,
        summary="Every step takes 10 ms, and a request with an output of n tokens keeps the server "
        "busy for n steps. How long does each wait before its first step?",
        table=(
            ["request", "arrives (ms)", "output (tokens)"],
            [[f"r{r.id}", r.arrival_ms, r.output_len] for r in requests],
        ),
    )
    rows: list[list[svg.Cell]] = [
        [f"r{r.id}", r.arrival_ms, 10.0 * r.output_len, r.arrival_ms + wait, wait]
        for r, wait in zip(requests, waited, strict=True)
    ]
    worked = svg.figure(
        "waits",
        lives(run, "Who waits and who is served"),
        title=f"{_TITLE}, worked out",
        summary="Each wait is the one before it, plus the service before it, minus the gap between "
        "the two arrivals, and never below zero.",
        table=(["request", "arrives (ms)", "service (ms)", "starts (ms)", "waits (ms)"], rows),
    )
    asks = (
        Ask("Wait of r2", "ms", waited[2]),
        Ask("Wait of r4", "ms", waited[4]),
        Ask("Mean wait of the five", "ms", sum(waited) / 5),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    times = [0]
    for _ in range(4):
        times.append(times[-1] + rng.randint(5, 50))
    return [request(i, t, 64, rng.randint(1, 6)) for i, t in enumerate(times)]


def _run(requests: list[Request]) -> Result:
    return simulate(requests, Naive(), cost=Affine(base_ms=10), record_steps=True)


def _waits(run: Result) -> list[float]:
    return [ms((r.first_scheduled_ns or 0) - r.request.arrival_ns) for r in run.records]


def _good(requests: list[Request]) -> bool:
    """Tell whether some find the server free, some do not, and the answers differ."""
    waited = _waits(_run(requests))
    some = sum(wait > 0 for wait in waited) > 1 and 0 in waited[1:]
    return some and len({waited[2], waited[4], sum(waited) / 5}) == 3
