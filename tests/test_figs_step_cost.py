"""The live figure of what a step costs, and the numbers that the chapter sets it against."""

from __future__ import annotations

import itertools
import random
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import pytest

import servesim as ss
from servesim import cost, figs
from servesim.explore import Explorer, explore
from tools.golden import MYST, code_cells

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "step-cost.md"
CELLS = [cell.source for cell in code_cells(jupytext.read(CHAPTER, fmt=MYST))]
MODELS = ["llama-3-8b", "opt-13b", "llama-2-70b"]
GPUS = ["1 H100", "8 H100", "1 A100", "8 A100"]
DEFAULT: dict[str, Any] = {
    "batch": 32,
    "context": 1024,
    "model": "llama-3-8b",
    "gpus": "1 H100",
}
CORNERS = list(itertools.product((1, 1024), (64, 16_384), MODELS, GPUS))


def figure_of_the_chapter() -> Explorer:
    """Run the cell of the chapter that shows the figure."""
    (cell,) = [source for source in CELLS if source.startswith("explore(")]
    found = eval(cell, {"explore": explore})
    assert isinstance(found, Explorer)
    return found


def told(summary: str, pattern: str) -> float:
    match = re.search(pattern, summary)
    assert match, summary
    return float(match[1])


def random_places() -> list[tuple[int, int, str, str]]:
    rng = random.Random(2)
    return [
        (rng.randint(1, 1024), 64 * rng.randint(1, 256), rng.choice(MODELS), rng.choice(GPUS))
        for _ in range(20)
    ]


def test_the_chapter_starts_with_the_functions_defaults() -> None:
    shown = figure_of_the_chapter()
    assert shown.values() == DEFAULT
    assert shown.figure().with_id("x").svg == figs.roofline().with_id("x").svg


def test_same_values_same_bytes() -> None:
    assert figs.roofline().to_html() == figs.roofline(**DEFAULT).to_html()


@pytest.mark.parametrize(("batch", "context", "model", "gpus"), CORNERS + random_places())
def test_every_place_of_the_sliders(batch: int, context: int, model: str, gpus: str) -> None:
    shown = figure_of_the_chapter()
    shown.set(batch=batch, context=context, model=model, gpus=gpus)
    assert shown.message == ""
    figure = shown.figure()
    ET.fromstring(figure.svg)

    # The step is that of the price list, whatever the figure adds up.
    name, count = figs.step_cost._GPUS[gpus]
    work = cost.Work(decodes=batch, context_tokens=batch * context)
    step = cost.Roofline(model, name, count).price_ns(work) / 1e6
    assert told(figure.summary, r"takes ([\d.]+) ms") == pytest.approx(step, abs=0.0051)
    each = told(figure.summary, r"([\d.]+) ms per token")
    assert each == pytest.approx(step / batch, abs=0.00051)
    parts = [told(figure.summary, rf"{k} ([\d.]+)") for k in ("weights", "KV cache", "arithmetic")]
    assert max(parts[0] + parts[1], parts[2]) == pytest.approx(step, abs=0.02)


@pytest.mark.parametrize(
    ("place", "bound"),
    [
        ({"batch": 1, "context": 64}, "the weights"),
        ({"batch": 1024, "context": 64}, "arithmetic"),
        ({"batch": 1024, "context": 8192}, "the KV cache"),
    ],
)
def test_it_says_what_bounds_the_step(place: dict[str, Any], bound: str) -> None:
    assert f"mostly {bound}." in figs.roofline(**place).summary


def test_the_table_holds_the_curve() -> None:
    figure = figs.roofline(context=64)
    assert figure.table is not None
    for row in figure.table.rows:
        batch, weights, kv, arithmetic, step, each = (float(v or 0) for v in row)
        assert step == pytest.approx(max(weights + kv, arithmetic))
        assert each == pytest.approx(step / batch)


@pytest.mark.parametrize("bad", [{"batch": 0}, {"context": 0}, {"gpus": "2 B200"}, {"model": "x"}])
def test_what_cannot_be_drawn_is_said(bad: dict[str, Any]) -> None:
    with pytest.raises(ss.InputError):
        figs.roofline(**bad)


# -- what the chapter says ------------------------------------------------------------------------


def test_llama_2_70b_has_the_published_shape() -> None:
    hidden, middle, layers, words = 8192, 28_672, 80, 32_000
    attention = 2 * hidden * hidden + 2 * hidden * 8 * 128
    layer = attention + 3 * hidden * middle + 2 * hidden
    weights = layers * layer + 2 * words * hidden + hidden
    model = cost.MODELS["llama-2-70b"]
    assert model.parameters == pytest.approx(weights, rel=0.001)
    assert model.kv_bytes == 320 * 1024


def test_the_ridge_is_where_arithmetic_takes_as_long_as_the_weights() -> None:
    price = cost.Roofline("llama-3-8b", "h100")
    below, above = (cost.Work(prefill_tokens=n) for n in (295, 296))
    assert price.compute_ns(below) < price.memory_ns(below)
    assert price.compute_ns(above) > price.memory_ns(above)
    assert figs.step_cost._ridge("1 H100") == pytest.approx(295.2, abs=0.1)


def test_above_415_tokens_of_context_a_decode_is_never_compute_bound() -> None:
    price = cost.Roofline("llama-3-8b", "h100")
    for context, bound in ((414, True), (416, False)):
        huge = cost.Work(decodes=10**7, context_tokens=10**7 * context)
        assert (price.compute_ns(huge) > price.memory_ns(huge)) is bound


def test_two_prices_of_the_fit_reach_the_same_share_of_the_bandwidth() -> None:
    price, fit = cost.Roofline("opt-13b", "a100"), cost.OPT_13B_A100
    weights = price.memory_ns(cost.Work()) / (1e6 * (fit.base_ms + fit.decode_step_ms))
    thousand = price.memory_ns(cost.Work(context_tokens=10**6)) - price.memory_ns(cost.Work())
    assert weights == pytest.approx(thousand / 1e6 / fit.context_ns, abs=0.001)


def test_the_exercises_price_list_adds_what_the_roofline_overlaps() -> None:
    (cell,) = [source for source in CELLS if "class Adding" in source]
    names: dict[str, Any] = {"dataclass": dataclass, "ss": ss}
    exec(cell, names)
    work = cost.Work(prefill_tokens=300, decodes=4, context_tokens=4000, longest_prefill=300)
    adding, price = names["Adding"](), cost.Roofline()
    assert adding.price_ns(work) == price.memory_ns(work) + price.compute_ns(work)
    requests = [ss.Request(0, 0, 300, 4)]
    slow, fast = (
        ss.simulate(requests, ss.policies.Continuous(), cost=p).end_ns for p in (adding, price)
    )
    assert slow > fast
