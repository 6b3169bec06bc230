"""By hand, in the chapter on four modes: one call, charged in three ways."""

from __future__ import annotations

import random

from .. import cost, svg
from ..engine import simulate
from ..policies import Continuous, Static
from ..request import Request
from .exercise import Ask, Exercise, drawn, ms, request

_TITLE = "One call for four prompts"
_LENGTHS = (50, 100, 150, 200, 300, 400, 600, 800)


def padding(seed: int = 0) -> Exercise:
    """Ask what the prefill call of one group costs by static's list and by the others'."""
    requests = drawn(seed, _draw, lambda drawn: len({r.prompt_len for r in drawn}) > 1)
    group = Static(len(requests))
    runs = {
        "By static's list": simulate(requests, group, cost=cost.TOY_STATIC),
        "By the others' list, padded": simulate(requests, group, cost=cost.TOY),
        "By the others' list, not padded": simulate(requests, Continuous(), cost=cost.TOY),
    }
    prices = [ms(run.end_ns) for run in runs.values()]
    call, token = cost.TOY.base_ms, cost.TOY.prefill_us / 1000
    charged = [round((price - call) / token) for price in prices]
    names = [f"r{r.id}" for r in requests]
    chart = svg.Chart(svg.Axis("", categories=names), "Prompt (tokens)", title=_TITLE)
    chart.bars("prompt", [r.prompt_len for r in requests])
    picture = svg.figure(
        "padding",
        chart,
        title=_TITLE,
        summary=f"A call costs {call:g} ms, and {token:g} ms for each prompt token that is "
        "charged. Static's list charges a padded group for one prompt. The others' list charges "
        "every token: of four prompts padded to the longest, or of the prompts as they are.",
        table=(["request", "prompt (tokens)"], [[f"r{r.id}", r.prompt_len] for r in requests]),
    )
    bars = svg.Chart(
        svg.Axis("", categories=["static's", "padded", "not padded"]), "Price (ms)", title=_TITLE
    )
    bars.bars("price", prices)
    worked = svg.figure(
        "padding",
        bars,
        title=f"{_TITLE}, worked out",
        summary="Charged are the longest prompt, four times the longest, and the sum: "
        f"{charged[0]}, {charged[1]} and {charged[2]} tokens.",
        table=(
            ["list", "tokens charged", "price (ms)"],
            [list(row) for row in zip(runs, charged, prices, strict=True)],
        ),
    )
    asks = tuple(Ask(name, "ms", price) for name, price in zip(runs, prices, strict=True))
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> list[Request]:
    return [request(i, 0, rng.choice(_LENGTHS), 1) for i in range(4)]
