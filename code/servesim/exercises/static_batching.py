"""By hand, in the chapter on static batching: when groups start, and which slots stand idle."""

from __future__ import annotations

import random

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..metrics import Result
from ..policies import Static
from ..request import Request
from .exercise import Ask, Exercise, arrivals, drawn, lives, ms, request, steps

_TITLE = "Four requests in groups of two"


def groups(seed: int = 0) -> Exercise:
    """Ask for TTFT and idle slot-steps of static batching in groups of two."""
    requests = drawn(seed, _draw, _good)
    run = _run(requests)
    picture = svg.figure(
        "groups",
        arrivals(requests),
        title=_TITLE,
        summary="Groups of two, every step 10 ms. A request with an output of n tokens takes part "
        "in n steps, its prefill included; a group starts when both are there and the group "
        "before is done. A slot-step is one place in one step.",
        table=(
            ["request", "arrives (ms)", "output (tokens)"],
            [[f"r{r.id}", r.arrival_ms, r.output_len] for r in requests],
        ),
    )
    header, rows = steps(step=run)
    idle = [step.idle_slots for step in run.step_records]
    worked = svg.figure(
        "groups",
        lives(run, "Who waits and who runs"),
        title=f"{_TITLE}, worked out",
        summary="The first of a group waits for the second to arrive, and all wait for the group "
        "before to end. From the end of a group's shorter output to that of its longer one a "
        "slot is idle.",
        table=([*header, "idle slots"], [[*r, n] for r, n in zip(rows, idle, strict=True)]),
    )
    asks = (
        Ask("TTFT of r0", "ms", ms(run.records[0].ttft_ns or 0)),
        Ask("TTFT of r3", "ms", ms(run.records[3].ttft_ns or 0)),
        Ask("Idle in both groups", "slot-steps", sum(idle)),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    times = [0]
    for _ in range(3):
        times.append(times[-1] + rng.randint(3, 40))
    return [request(i, t, 64, rng.randint(1, 6)) for i, t in enumerate(times)]


def _run(requests: list[Request]) -> Result:
    return simulate(requests, Static(2), cost=Affine(base_ms=10), record_steps=True)


def _good(requests: list[Request]) -> bool:
    """Tell whether slots stand idle, the second group waits, and the answers differ."""
    run = _run(requests)
    idle = sum(step.idle_slots for step in run.step_records)
    waits = run.records[3].ttft_ns != run.records[1].ttft_ns
    return idle > 0 and waits and run.records[0].ttft_ns != run.records[3].ttft_ns
