"""The live figure of capacity, and what the chapter on design says and defines."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import jupytext
import pytest

import servesim as ss
from servesim import figs
from servesim.capacity import grid
from servesim.explore import explore
from tools.golden import MYST, code_cells

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "design-a-policy.md"
CELLS = [cell.source for cell in code_cells(jupytext.read(CHAPTER, fmt=MYST))]
TARGET = "servesim.figs:capacity"
PARAMS: dict[str, Any] = {
    "ttft_ms": (250, 6000, 250, 2000),
    "tpot_ms": (30, 200, 10, 100),
    "percent": (60, 99, 1, 90),
}
DEFAULT = {name: values[3] for name, values in PARAMS.items()}
RATES = list(grid(0.4, 1.8, 0.15))
POLICIES = {
    "first come": ss.policies.VLLM(512),
    "priority": ss.policies.Priority(512, patience_s=10),
    "shortest": ss.policies.ShortestFirst(512, error=0.5),
    "fair": ss.policies.Fair(512),
    "shedding": ss.policies.Shedding(512, patience_s=1.5),
}


def test_the_chapter_asks_for_these_parameters() -> None:
    text = re.search(r'explore\(\n    "servesim\.figs:capacity".*?\n\)', CHAPTER.read_text(), re.S)
    assert text is not None
    call = ast.parse(text[0], mode="eval").body
    assert isinstance(call, ast.Call)
    told = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg in PARAMS}
    assert told == PARAMS


def test_defaults_are_the_chapters() -> None:
    takes = inspect.signature(figs.capacity).parameters
    assert {name: takes[name].default for name in PARAMS} == DEFAULT
    assert explore(TARGET, **PARAMS).values() == DEFAULT


def test_same_bytes_every_time() -> None:
    first = figs.capacity(tpot_ms=60, percent=85)
    module = sys.modules["servesim.figs.capacity"]
    for name in POLICIES:
        assert module._times.__wrapped__(name, RATES[3]) == module._times(name, RATES[3])
    assert figs.capacity(tpot_ms=60, percent=85) == first


def rerun(name: str, rate: float) -> ss.Result:
    lengths = "azure_conv", "azure_conv"
    parts = {
        "chat": ss.workload.poisson(60, rate * 60 / 100, *lengths, seed=3),
        "bulk": ss.workload.gamma(40, rate - rate * 60 / 100, 3, *lengths, seed=103),
    }
    requests = ss.workload.merge(parts, {"bulk": 1})
    return ss.simulate(requests, POLICIES[name], kv=ss.KVCache(981))


@pytest.mark.parametrize("name", POLICIES)
def test_the_numbers_are_those_of_the_runs(name: str) -> None:
    slo, share = ss.SLO(1500, 70), 0.8
    figure = figs.capacity(1500, 70, 80)
    results = {rate: rerun(name, rate) for rate in RATES}
    kept = [100 * result.attainment(slo) for result in results.values()]
    assert figure.table is not None
    row = next(row for row in figure.table.rows if row[0] == name)
    assert row[2:] == pytest.approx(kept)
    found = ss.capacity(
        lambda rate: results[rate].attainment(slo) >= share, low=0.4, high=1.8, tolerance=0.15
    )
    assert row[1] == str(found)
    assert f"{name} {found}" in figure.summary


def test_the_default_promise_stays_visible() -> None:
    explorer = explore(TARGET, **PARAMS)
    assert "default" not in explorer.figure().svg
    assert "default promise" in explorer.figure(percent=80).svg


def test_a_looser_promise_is_never_harder_to_keep() -> None:
    """The caption's sentence, as far as it can be one for every promise."""

    def rates(**promise: float) -> list[float]:
        table = figs.capacity(**promise).table
        assert table is not None
        return [sum(float(c or 0) >= promise["percent"] for c in row[2:]) for row in table.rows]

    strict, middle, loose = (rates(percent=p) for p in (98, 90, 75))
    assert all(a <= b <= c for a, b, c in zip(strict, middle, loose, strict=True))
    assert max(loose) - min(loose) > max(strict) - min(strict)


@pytest.mark.parametrize("percent", [0, -1, 101])
def test_a_share_out_of_range_is_one_sentence(percent: int) -> None:
    with pytest.raises(ss.InputError, match="percent is from above 0 to 100"):
        figs.capacity(percent=percent)


def test_the_solution_serves_the_newest_first() -> None:
    (cell,) = [source for source in CELLS if source.startswith("class NewestFirst(")]
    scope: dict[str, Any] = {"VLLM": ss.policies.VLLM}
    exec(cell, scope)
    policy = scope["NewestFirst"](512, 1)
    requests = [ss.Request(i, i, 5, 5) for i in range(6)]
    result = ss.simulate(requests, policy)
    begun = sorted(result.records, key=lambda r: r.first_scheduled_ns or 0)
    assert [r.request.id for r in begun] == [0, 5, 4, 3, 2, 1]
    asked = ss.workload.poisson(60, 1.2, "azure_conv", "azure_conv", seed=1)
    fast, slow = (
        ss.simulate(asked, scope["NewestFirst"](512), kv=ss.KVCache(981), skip=skip)
        for skip in (True, False)
    )
    assert fast.records == slow.records
