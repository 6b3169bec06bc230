"""By hand, in the chapter on requests: when the first and the last token come."""

from __future__ import annotations

import random

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..metrics import Result
from ..policies import Chunked
from ..request import Request
from .exercise import Ask, Exercise, arrivals, drawn, lives, ms, off_the_steps, request, steps

_TITLE = "Three requests, steps of 10 ms"


def first_tokens(seed: int = 0) -> Exercise:
    """Ask for TTFT and E2E where each step takes 10 ms and 4 tokens of each prompt."""
    requests = drawn(seed, _draw, _good)
    run = _run(requests)
    _, second, third = run.records
    rows: list[list[svg.Cell]] = [
        [f"r{r.id}", r.arrival_ms, r.prompt_len, r.output_len] for r in requests
    ]
    picture = svg.figure(
        "first-tokens",
        arrivals(requests),
        title=_TITLE,
        summary="Every step takes 10 ms and at most 4 tokens of each prompt, and everybody who is "
        "there when it begins takes part. When does each request get its first and last token?",
        table=(["request", "arrives (ms)", "prompt (tokens)", "output (tokens)"], rows),
    )
    worked = svg.figure(
        "first-tokens",
        lives(run, "Who does what when"),
        title=f"{_TITLE}, worked out",
        summary="A prompt is read in pieces of 4 tokens, one a step. The step that reads the last "
        "piece ends with the first token, and each further step brings one more.",
        table=steps(step=run),
    )
    asks = (
        Ask("TTFT of r1", "ms", ms(second.ttft_ns or 0)),
        Ask("TTFT of r2", "ms", ms(third.ttft_ns or 0)),
        Ask("E2E of r2", "ms", ms(third.e2e_ns or 0)),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    times = [0, *sorted(rng.sample(range(1, 39), 2))]
    return [request(i, t, rng.randint(2, 10), rng.randint(2, 4)) for i, t in enumerate(times)]


def _run(requests: list[Request]) -> Result:
    return simulate(requests, Chunked(chunk=4), cost=Affine(base_ms=10), record_steps=True)


def _good(requests: list[Request]) -> bool:
    run = _run(requests)
    long = max(r.prompt_len for r in requests[1:]) > 4
    differ = run.records[1].ttft_ns != run.records[2].ttft_ns
    return long and differ and off_the_steps(requests, run)
