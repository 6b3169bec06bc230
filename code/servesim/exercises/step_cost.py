"""By hand, in the chapter on a step's cost: which side of the maximum wins."""

from __future__ import annotations

import random

from .. import svg
from ..cost import Roofline, Work
from .exercise import Ask, Exercise, drawn, ms

_TITLE = "A step of OPT-13B on one A100"
_FLOOR = Roofline("opt-13b", "a100")


def one_step(seed: int = 0) -> Exercise:
    """Ask what decodes and a prompt cost at least: in one step, and each in its own."""
    contexts, prompt = drawn(seed, _draw, _good)
    decodes, both = _decodes(contexts), _both(contexts, prompt)
    alone = Work(prefill_tokens=prompt)
    cases = {"both in one step": both, "decodes alone": decodes, "prompt alone": alone}
    read, look = (ms(_FLOOR.memory_ns(Work(context_tokens=n))) for n in (0, 1000))
    hundred = ms(_FLOOR.compute_ns(Work(prefill_tokens=100)))
    given = [*((f"context {i}", n) for i, n in enumerate(contexts)), ("prompt", prompt)]
    picture = svg.figure(
        "one-step",
        svg.BudgetBar(
            [svg.Part("decode", len(contexts), "decode"), svg.Part("prompt", prompt, "prefill")],
            600,
            title="Tokens that pass through the model",
        ),
        svg.BudgetBar(
            [svg.Part(f"context {i}", n, i + 1) for i, n in enumerate(contexts)],
            20_000,
            title="Tokens that the decodes read",
        ),
        title=_TITLE,
        summary=f"Reading the weights takes {read:.2f} ms and each 1000 tokens of context "
        f"{look - read:.2f} ms; computing takes {hundred:.2f} ms per 100 tokens that pass through "
        f"the model. {len(contexts)} sequences with these contexts decode, and a prompt is "
        "processed. How long are the steps at least, to a tenth of a millisecond?",
        table=(["what", "tokens"], [[name, n] for name, n in given]),
    )
    names = list(cases)
    chart = svg.Chart(svg.Axis("", categories=names), "Time (ms)", title="Two times for each step")
    memory = [ms(_FLOOR.memory_ns(work)) for work in cases.values()]
    arithmetic = [ms(_FLOOR.compute_ns(work)) for work in cases.values()]
    chart.bars("memory", memory, color=1)
    chart.bars("arithmetic", arithmetic, color=2)
    takes = [max(pair) for pair in zip(memory, arithmetic, strict=True)]
    rows = list(zip(names, memory, arithmetic, takes, strict=True))
    saved = takes[1] + takes[2] - takes[0]
    worked = svg.figure(
        "one-step",
        chart,
        title=f"{_TITLE}, worked out",
        summary="A step takes the longer of the two times. In one step instead of two, the "
        f"weights are read once for both, which saves {saved:.1f} ms here.",
        table=(["step", "memory (ms)", "arithmetic (ms)", "takes (ms)"], rows),
    )
    labels = ("Both in one step", "The decodes alone", "The prompt alone")
    asks = tuple(
        Ask(label, "ms", round(time, 1), 0.1) for label, time in zip(labels, takes, strict=True)
    )
    return Exercise.of(picture, asks, worked)


def _draw(rng: random.Random) -> tuple[list[int], int]:
    contexts = [500 * rng.randint(1, 8) for _ in range(rng.randint(3, 5))]
    return contexts, 50 * rng.randint(1, 11)


def _decodes(contexts: list[int]) -> Work:
    return Work(decodes=len(contexts), context_tokens=sum(contexts))


def _both(contexts: list[int], prompt: int) -> Work:
    return _decodes(contexts)._replace(prefill_tokens=prompt)


def _good(case: tuple[list[int], int]) -> bool:
    """One side wins clearly in each step, so that rounding does not decide."""
    contexts, prompt = case
    works = (_both(contexts, prompt), Work(prefill_tokens=prompt))
    return all(abs(ms(_FLOOR.memory_ns(w) - _FLOOR.compute_ns(w))) > 1 for w in works)
