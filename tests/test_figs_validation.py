"""The live figure of the chapter on validation: how close policies come to the lower bound."""

from __future__ import annotations

import itertools
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import jupytext
import pytest

from servesim import KVCache, figs, policies, simulate, workload
from servesim.cost import OPT_13B_A100
from servesim.errors import InputError
from servesim.explore import Explorer, explore
from tools.golden import MYST, code_cells

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "validation.md"
CORNERS = list(itertools.product((4000, 32000), (64, 2048)))


def figure_of_the_chapter() -> Explorer:
    cells = [cell.source for cell in code_cells(jupytext.read(CHAPTER, fmt=MYST))]
    (cell,) = [source for source in cells if source.startswith("explore(")]
    found = eval(cell, {"explore": explore})
    assert isinstance(found, Explorer)
    return found


def random_places() -> list[tuple[int, int]]:
    rng = random.Random(5)
    return [(4000 * rng.randint(1, 8), 64 * rng.randint(1, 32)) for _ in range(8)]


def test_the_chapter_starts_with_the_functions_defaults() -> None:
    shown = figure_of_the_chapter().figure()
    assert shown.with_id("x").svg == figs.lower_bound().with_id("x").svg


def test_same_values_same_bytes() -> None:
    first = figs.lower_bound(8000, 256).to_html()
    figs.validation._runs.cache_clear()
    assert figs.lower_bound(8000, 256).to_html() == first


@pytest.mark.parametrize(("memory", "prompt"), CORNERS + random_places())
def test_every_place_of_the_sliders(memory: int, prompt: int) -> None:
    shown = figure_of_the_chapter()
    shown.set(memory=memory, prompt=prompt)
    assert shown.message == ""
    figure = shown.figure()
    ET.fromstring(figure.svg)
    for row in figure.table.rows:
        vllm, static = (float(str(share)) for share in row[2:])
        assert vllm <= 100
        assert 0 < static <= vllm  # as the caption says


def test_the_numbers_are_those_of_a_run() -> None:
    figure = figs.lower_bound(8000, 512)
    requests, kv = workload.poisson(20, 16, 512, (50, 300), 1), KVCache(500)
    bound = OPT_13B_A100.lower_bound(requests, kv)
    share = 100 * bound / simulate(requests, policies.VLLM(), kv=kv).makespan_ns
    last = figure.table.rows[-1]
    assert last[:3] == ["16", pytest.approx(bound / 1e9), pytest.approx(share)]
    found = re.search(r"less than ([\d.]+) s.*vLLM (\d+) %", figure.summary)
    assert found
    assert found.groups() == (f"{bound / 1e9:.1f}", f"{share:.0f}")


def test_the_default_stays_visible() -> None:
    ghost = figs.lower_bound(4000, 1024, ghost={"memory": 16000, "prompt": 512})
    assert "default" in ghost.svg
    assert "default" not in figs.lower_bound(ghost={"memory": 16000, "prompt": 512}).svg


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(InputError):
        figs.lower_bound(1000, 2048)
