"""By hand, in the chapter on chunked prefill: prompts in one piece, and in slices."""

from __future__ import annotations

import random

from .. import svg
from ..cost import Affine
from ..engine import simulate
from ..metrics import Result
from ..policies import Chunked, Continuous
from ..request import Request
from .exercise import Ask, Exercise, arrivals, drawn, lives, ms, off_the_steps, request, steps

_TITLE = "Three requests, prompts whole and sliced"
_BUDGET = 16


def slices(seed: int = 0) -> Exercise:
    """Ask for the longest gap and a TTFT, with prompts whole and with 16 tokens a step."""
    requests = drawn(seed, _draw, _good)
    whole, sliced = _runs(requests)
    rows: list[list[svg.Cell]] = [
        [f"r{r.id}", r.arrival_ms, r.prompt_len, r.output_len] for r in requests
    ]
    picture = svg.figure(
        "slices",
        arrivals(requests),
        title=_TITLE,
        summary="A step takes 10 ms, plus 1 ms for each prompt token in it; decodes are free. Work "
        f"it out twice: with whole prompts, and with at most {_BUDGET} tokens in a step, of which "
        "each decode takes one.",
        table=(["request", "arrives (ms)", "prompt (tokens)", "output (tokens)"], rows),
    )
    worked = svg.figure(
        "slices",
        lives(whole, "Prompts whole"),
        lives(sliced, f"At most {_BUDGET} tokens a step"),
        title=f"{_TITLE}, worked out",
        summary="Decodes take their tokens from the budget first. What is left goes to the prompt "
        "that came first, and only what that leaves to the next.",
        table=steps(whole=whole, sliced=sliced),
        share_x=True,
    )
    asks = (
        Ask("Longest gap of r0, prompts whole", "ms", _gap(whole)),
        Ask("Longest gap of r0, prompts sliced", "ms", _gap(sliced)),
        Ask("TTFT of r2, prompts sliced", "ms", ms(sliced.records[2].ttft_ns or 0)),
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    second = rng.randint(11, 35)
    return [
        request(0, 0, rng.randint(3, 8), rng.randint(4, 6)),
        request(1, second, rng.randint(18, 40), rng.randint(2, 3)),
        request(2, second + rng.randint(3, 30), rng.randint(6, 30), rng.randint(1, 2)),
    ]


def _runs(requests: list[Request]) -> tuple[Result, Result]:
    prices = Affine(base_ms=10, prefill_us=1000)
    whole = simulate(requests, Continuous(), cost=prices, record_steps=True)
    return whole, simulate(requests, Chunked(_BUDGET), cost=prices, record_steps=True)


def _gap(run: Result) -> float:
    return ms(max(run.records[0].gaps))


def _good(requests: list[Request]) -> bool:
    """Tell whether slicing shortens r0's stall, and nobody arrives just when a step ends."""
    whole, sliced = _runs(requests)
    answers = {_gap(whole), _gap(sliced), ms(sliced.records[2].ttft_ns or 0)}
    shorter = _gap(sliced) < _gap(whole)
    return shorter and len(answers) == 3 and off_the_steps(requests, whole, sliced)
