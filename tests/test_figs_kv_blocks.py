"""The live figure of the chapter on KV blocks."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import product
from pathlib import Path

import jupytext
import pytest

from servesim import explore, figs
from servesim.errors import InputError
from servesim.kv import block_map

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "kv-blocks.md"
KINDS = [*figs.kv_memory._KINDS]
SIZES = (4, 8, 16, 32, 64)


def chapter_explorer() -> explore.Explorer:
    """Return what the chapter's cell shows."""
    cells = jupytext.read(CHAPTER, fmt={"extension": ".md", "format_name": "myst"}).cells
    (source,) = [c.source for c in cells if c.source.startswith("explore(")]
    found = eval(source, {"explore": explore.explore})
    assert isinstance(found, explore.Explorer)
    return found


def test_the_same_values_give_the_same_bytes() -> None:
    first = figs.kv_blocks()
    figs.kv_memory._run.cache_clear()
    assert figs.kv_blocks() == first


def test_the_chapter_starts_with_the_function_s_own_defaults() -> None:
    figure = chapter_explorer().figure()
    own = figs.kv_blocks().with_id(figure.id)
    assert (figure.svg, figure.summary, figure.table) == (own.svg, own.summary, own.table)


def test_the_chapter_offers_all_there_is() -> None:
    params = chapter_explorer().params
    policy, size = params["policy"], params["block_size"]
    assert isinstance(policy, explore.Choice)
    assert isinstance(size, explore.Choice)
    assert sorted(policy.options) == sorted(KINDS)
    assert sorted(map(int, size.options)) == list(SIZES)


@pytest.mark.parametrize("policy", KINDS)
def test_corners_are_drawn(policy: str) -> None:
    live = chapter_explorer()
    for memory, size, moment in product((256, 1280), (4, 64), (0, 100)):
        figure = live.figure(memory=memory, block_size=size, policy=policy, moment=moment)
        ET.fromstring(figure.svg)
        assert "nan" not in figure.svg
        assert figure.table is not None
        assert len(figure.table.rows) == 12


def test_a_cache_for_nobody_is_drawn_too() -> None:
    figure = figs.kv_blocks(memory=16, policy="reserve the maximum")
    ET.fromstring(figure.svg)
    assert "all of them are turned away" in figure.summary


def test_the_summary_states_the_run() -> None:
    figure = figs.kv_blocks()
    result = figs.kv_memory._run(40, 16, "on demand, paged")
    assert result.preemptions > 0
    assert f"{result.preemptions} preemptions" in figure.summary
    assert f"{result.mean_running:.1f} requests in the batch" in figure.summary
    at = (len(result.step_records) - 1) * 40 // 100
    tokens = sum(block_map(result.step_records, result.kv)[at].tokens)
    assert f"in step {at} it is {100 * tokens / 640:.0f} %" in figure.summary


def test_the_map_shows_who_holds_how_much() -> None:
    figure = figs.kv_blocks(policy="reserve the maximum", moment=50)
    result = figs.kv_memory._run(40, 16, "reserve the maximum")
    step = result.step_records[(len(result.step_records) - 1) // 2]
    for rid, blocks in step.blocks.items():
        assert f"r{rid} ({blocks})" in figure.svg
    assert set(step.blocks.values()) == {16}  # 256 tokens each, whatever they need


def test_on_demand_is_done_before_exact_before_the_maximum() -> None:
    ends = [figs.kv_memory._run(40, 16, kind).makespan_ns for kind in KINDS]
    assert ends == sorted(ends, reverse=True)
    assert all(figs.kv_memory._run(40, 16, k).preemptions == 0 for k in KINDS[:-1])


def test_bad_values_are_refused_in_one_sentence() -> None:
    with pytest.raises(InputError, match="kv_blocks: no 'swap'"):
        figs.kv_blocks(policy="swap")
    with pytest.raises(InputError, match="moment is a share of the run"):
        figs.kv_blocks(moment=101)
    with pytest.raises(InputError, match=re.escape("blocks must be a whole number")):
        figs.kv_blocks(memory=0)
