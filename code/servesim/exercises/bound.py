"""By hand, in the chapter on validation: a time before which no policy is done."""

from __future__ import annotations

import random
from collections.abc import Sequence

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..policies import VLLM
from ..request import Request
from .exercise import Ask, Exercise, arrivals, drawn, lives, ms, request

_TITLE = "Four requests, and the worst moment"
_PRICES = Affine(base_ms=10, prefill_us=1000)


def worst_moment(seed: int = 0) -> Exercise:
    """Ask for the lower bound on the clock, seen from some moments and from the worst."""
    requests = drawn(seed, _draw, _good)
    run = simulate(requests, VLLM(), cost=_PRICES, record_steps=True)
    moments = [_moment(requests[i:]) for i in range(len(requests))]
    least = ms(requests[0].arrival_ns + _PRICES.lower_bound(requests))
    picture = svg.figure(
        "worst-moment",
        arrivals(requests),
        title=_TITLE,
        summary="Every step takes 10 ms, a prompt token 1 ms, everything else nothing. Before "
        "which time on the clock can no policy be done? Write one line for each moment of "
        "arrival: who comes from then on needs all its prompt tokens, and as many steps as the "
        "longest of these outputs has tokens.",
        table=(
            ["request", "arrives (ms)", "prompt (tokens)", "output (tokens)"],
            [[f"r{r.id}", r.arrival_ms, r.prompt_len, r.output_len] for r in requests],
        ),
    )
    rows: list[list[svg.Cell]] = [
        [f"r{r.id} on", r.arrival_ms, prompts, steps, end]
        for r, (prompts, steps, end) in zip(requests, moments, strict=True)
    ]
    worst = requests[max(range(len(rows)), key=lambda i: moments[i][2])]
    worked = svg.figure(
        "worst-moment",
        lives(run, "With vLLM's policy"),
        title=f"{_TITLE}, worked out",
        summary=f"The moment when r{worst.id} arrives decides: {least:.0f} ms. vLLM's policy is "
        f"done at {ms(run.end_ns):.0f} ms.",
        table=(["from", "arrives (ms)", "prompts", "steps at least", "not before (ms)"], rows),
    )
    asks = (
        Ask("Seen from r3, not before", "ms", moments[3][2]),
        Ask("Seen from r1, not before", "ms", moments[1][2]),
        Ask("No policy is done before", "ms", least),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    times = [0, *sorted(rng.sample(range(5, 150), 3))]
    return [request(i, t, rng.randint(5, 40), rng.randint(1, 9)) for i, t in enumerate(times)]


def _moment(later: Sequence[Request]) -> tuple[int, int, float]:
    """Return prompt tokens and steps of those who come from a moment on, and when they end."""
    prompts, steps = sum(r.prompt_len for r in later), max(r.output_len for r in later)
    alone = Request(0, later[0].arrival_ns, prompts, steps)
    return prompts, steps, ms(alone.arrival_ns + _PRICES.lower_bound([alone]))


def _good(requests: list[Request]) -> bool:
    """Tell whether one moment decides, clearly, and is not the last."""
    ends = [_moment(requests[i:])[2] for i in range(len(requests))]
    second, best = sorted(ends)[-2:]
    return best - second >= 2 and best != ends[3]
