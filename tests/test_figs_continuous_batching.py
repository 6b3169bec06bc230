"""The live figure of continuous batching: slots against throughput and latency."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from servesim import figs, policies, simulate, workload
from servesim.errors import InputError
from servesim.explore import explore
from servesim.svg import fmt

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "continuous-batching.md"
TARGET = "servesim.figs:batching"
PARAMS: dict[str, Any] = {
    "rate": (1, 8, 0.5, 4),
    "max_batch": (1, 64, 1, 16),
    "policy": ["continuous", "static"],
}


def rerun(policy: str, slots: int, rate: float) -> Any:
    requests = workload.poisson(n=50, rate=rate, prompt=512, output=[16, 32, 64, 160], seed=453)
    chosen = policies.Static(slots) if policy == "static" else policies.Continuous(slots)
    return simulate(requests, chosen)


def test_the_chapter_asks_for_these_parameters() -> None:
    text = re.search(r'explore\(\n    "servesim\.figs:batching".*?\n\)', CHAPTER.read_text(), re.S)
    assert text is not None
    call = ast.parse(text[0], mode="eval").body
    assert isinstance(call, ast.Call)
    told = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg in PARAMS}
    assert told == PARAMS


def test_defaults_are_the_chapters() -> None:
    takes = inspect.signature(figs.batching).parameters
    defaults = {name: takes[name].default for name in PARAMS}
    assert defaults == explore(TARGET, **PARAMS).values()


def test_two_parameters_are_enough() -> None:
    few = {name: PARAMS[name] for name in ("rate", "max_batch")}
    assert explore(TARGET, **few).figure() == explore(TARGET, **PARAMS).figure()


def test_same_bytes_every_time() -> None:
    first = figs.batching(rate=6.5, max_batch=12)
    figs.continuous_batching._run.cache_clear()
    assert figs.batching(rate=6.5, max_batch=12) == first


@pytest.mark.parametrize("policy", ["continuous", "static"])
def test_summary_and_table_are_those_of_the_run(policy: str) -> None:
    figure, result = figs.batching(7.5, 13, policy), rerun(policy, 13, 7.5)
    told = (
        f"{result.throughput_tok_s:.0f} tokens/s, mean TTFT {result.ttft_ms.mean:,.0f} ms, "
        f"mean TPOT {result.tpot_ms.mean:.1f} ms, P99 ITL {result.itl_ms.percentile(99):.1f} ms."
    )
    assert figure.summary.endswith(told)
    assert "Default" not in figure.summary
    assert figure.table is not None
    row = next(row for row in figure.table.rows if row[0] == "13")
    assert row[1] == result.throughput_tok_s
    assert row[5] == result.mean_running


@pytest.mark.parametrize("rate", [1.0, 4.0, 8.0])
def test_a_run_with_slots_to_spare_stands_for_all_that_have_enough(rate: float) -> None:
    _, most = figs.continuous_batching._ample(rate)
    for slots in (1, most - 1, most, most + 1, 64):
        ours = figs.continuous_batching._run("continuous", slots, rate)
        result = rerun("continuous", slots, rate)
        assert ours.records == result.records
        assert ours.mean_running == result.mean_running
    short = figs.continuous_batching._run("continuous", most - 1, rate)
    assert short.records != ours.records


def test_the_default_run_stays_visible() -> None:
    explorer = explore(TARGET, **PARAMS)
    assert "default" not in explorer.figure().svg
    assert "default: 16" in explorer.figure(max_batch=4).svg
    other = explorer.figure(rate=8)
    assert "default: continuous, 4 requests/s" in other.svg
    result = rerun("continuous", 16, 4)
    assert f"Default: Continuous batching, 4 requests/s, 16 slots ({result.mean_running:.1f}" in (
        other.summary
    )


def test_what_is_asked_for_is_a_line() -> None:
    assert f"asked for: {fmt(8 * 68.0)}" in figs.batching(rate=8).svg


def test_more_slots_never_hurt_throughput_and_always_help_the_waiting() -> None:
    """The caption's sentence: throughput and TTFT gain, TPOT pays, until there are enough."""
    table = figs.batching().table
    assert table is not None
    throughput, ttft, tpot = ([row[i] for row in table.rows] for i in (1, 2, 3))
    assert throughput == sorted(throughput, key=float)  # type: ignore[arg-type]
    assert ttft == sorted(ttft, key=float, reverse=True)  # type: ignore[arg-type]
    assert tpot == sorted(tpot, key=float)  # type: ignore[arg-type]
    assert table.rows[-1][1:] == table.rows[-2][1:]


def test_an_unknown_policy_is_one_sentence() -> None:
    with pytest.raises(InputError, match="use continuous or static"):
        figs.batching(policy="magic")
