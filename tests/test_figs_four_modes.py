"""The live figure of the chapter on the four modes."""

from __future__ import annotations

import re
from pathlib import Path

import jupytext
import pytest

import servesim as ss
from servesim import cost, explore, figs, svg, systems
from servesim.errors import InputError

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "four-modes.md"
PRICES = [*figs.modes._PRICES]


def chapter_explorer() -> explore.Explorer:
    """Return what the chapter's cell shows."""
    cells = jupytext.read(CHAPTER, fmt={"extension": ".md", "format_name": "myst"}).cells
    (source,) = [c.source for c in cells if c.source.startswith("explore(")]
    found = eval(source, {"explore": explore.explore})
    assert isinstance(found, explore.Explorer)
    return found


def test_the_same_values_give_the_same_bytes() -> None:
    assert figs.four_modes() == figs.four_modes()
    figs.modes._published.cache_clear()
    assert figs.four_modes(rate=2).svg == figs.four_modes(rate=2).svg


def test_the_chapter_starts_with_the_function_s_own_defaults() -> None:
    figure = chapter_explorer().figure()
    own = figs.four_modes().with_id(figure.id)
    assert (figure.svg, figure.summary, figure.table) == (own.svg, own.summary, own.table)


def test_the_chapter_offers_the_price_lists_that_there_are() -> None:
    choice = chapter_explorer().params["prices"]
    assert isinstance(choice, explore.Choice)
    assert list(choice.options) == PRICES


def test_summary_and_table_state_what_the_simulator_says() -> None:
    work, kv = ss.workload.toy(), systems.TOY_KV
    fast = ss.simulate(work, ss.policies.Continuous(), cost=cost.TOY, kv=kv)
    slow = ss.simulate(work, ss.policies.Static(16), cost=cost.TOY, kv=kv)
    figure = figs.four_modes()
    a, b = fast.throughput_tok_s, slow.throughput_tok_s
    assert a is not None
    assert b is not None
    assert f"continuous makes {a:,.0f} tokens/s, {a / b:.2f} times static's {b:,.0f}" in (
        figure.summary
    )
    assert figure.table is not None
    told = svg.fmt(figure.table.rows[2][3])
    assert told == svg.fmt(fast.itl_ms.percentile(99))


@pytest.mark.parametrize("blocks", [600, 9600])
def test_alone_the_size_of_the_memory_changes_nothing(blocks: int) -> None:
    for mode in ("naive", "continuous"):
        rows = [figs.modes._row(mode, "toy", size, 40, 7) for size in (blocks, None)]
        assert (rows[0] == rows[1]) == (mode == "naive" or blocks == 9600)


def test_the_ghost_is_the_published_table() -> None:
    figure = figs.four_modes()
    assert figure.table is not None
    published = [row[4:] for row in figure.table.rows]
    rows = systems.toy_rows(systems.toy_report())[1:]
    for (tokens, ttft, gap), row in zip(published, rows, strict=True):
        assert [f"{tokens:.0f}", f"{ttft:.1f}", f"{gap:.1f}"] == row[1:4]
    assert len(re.findall("before: ", figure.svg)) == 3 * 4


def test_unpadded_static_does_the_same_steps_for_less() -> None:
    work, kv = ss.workload.toy(), systems.TOY_KV
    padded, plain = (
        ss.simulate(work, mode, cost=cost.TOY, kv=kv, record_steps=True)
        for mode in (ss.policies.Static(16), figs.modes._Unpadded(16))
    )
    assert padded.steps == plain.steps
    real = sum(r.prompt_len for r in work)
    assert sum(s.work.prefill_tokens for s in plain.step_records) == real
    assert sum(s.work.prefill_tokens for s in padded.step_records) > real
    assert plain.makespan_ns < padded.makespan_ns


def test_without_a_shared_part_batching_gains_nothing() -> None:
    prices = cost.Affine(prefill_us=40, decode_us=500)
    work, kv = ss.workload.toy(), systems.TOY_KV
    naive, fast = (
        ss.simulate(work, mode, cost=prices, kv=kv)
        for mode in (ss.policies.Naive(), ss.policies.Continuous())
    )
    assert naive.makespan_ns == fast.makespan_ns


@pytest.mark.parametrize("wrong", [{"prices": "free"}, {"padding": "maybe"}, {"kv_blocks": 100}])
def test_wrong_values_are_refused_in_one_sentence(wrong: dict[str, object]) -> None:
    with pytest.raises(InputError):
        figs.four_modes(**wrong)  # type: ignore[arg-type]
