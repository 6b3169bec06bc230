"""The live figure of chunked prefill, and the policies that its chapter's solutions define."""

from __future__ import annotations

import ast
import inspect
import itertools
import random
import re
from pathlib import Path
from typing import Any

import jupytext
import pytest

import servesim as ss
from servesim import figs, plots, policies, workload
from servesim.errors import InputError
from servesim.explore import explore
from servesim.request import NS_PER_MS, NS_PER_S
from tools.golden import MYST, code_cells

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "chunked-prefill.md"
CELLS = [cell.source for cell in code_cells(jupytext.read(CHAPTER, fmt=MYST))]
TARGET = "servesim.figs:chunked"
PARAMS: dict[str, Any] = {
    "token_budget": (128, 4096, 64, 512),
    "rate": (0.5, 3, 0.25, 2.0),
    "long_percent": (0, 50, 5, 15),
}
DEFAULT = {"token_budget": 512, "rate": 2.0, "long_percent": 15}


def test_the_chapter_asks_for_these_parameters() -> None:
    text = re.search(r'explore\(\n    "servesim\.figs:chunked".*?\n\)', CHAPTER.read_text(), re.S)
    assert text is not None
    call = ast.parse(text[0], mode="eval").body
    assert isinstance(call, ast.Call)
    told = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg in PARAMS}
    assert told == PARAMS


def test_defaults_are_the_chapters() -> None:
    takes = inspect.signature(figs.chunked).parameters
    assert {name: takes[name].default for name in PARAMS} == DEFAULT
    assert explore(TARGET, **PARAMS).values() == DEFAULT


def test_same_bytes_every_time() -> None:
    first = figs.chunked(token_budget=832, rate=2.75)
    figs.chunked_prefill._run.cache_clear()
    figs.chunked_prefill._gaps.cache_clear()
    assert figs.chunked(token_budget=832, rate=2.75) == first


CORNERS = list(itertools.product((128, 4096), (0.5, 3.0), (0, 50)))


def places() -> list[tuple[int, float, int]]:
    rng = random.Random(7)
    return [
        (64 * rng.randint(2, 64), rng.randint(2, 12) / 4, 5 * rng.randint(0, 10)) for _ in range(20)
    ]


def rerun(budget: int, rate: float, long_percent: int, **options: Any) -> ss.Result:
    asked = workload.poisson(20, rate, 256, (40, 160), seed=23)
    order = figs.chunked_prefill._order()[: round(20 * long_percent / 100)]
    requests = [
        ss.Request(r.id, r.arrival_ns, 4096 if r.id in order else 256, r.output_len) for r in asked
    ]
    policy = policies.Chunked(budget) if budget else policies.Continuous()
    return ss.simulate(requests, policy, **options)


def sentence(name: str, result: ss.Result) -> str:
    return (
        f"{name}: P99 ITL {result.itl_ms.percentile(99):.0f} ms, longest gap "
        f"{result.itl_ms.max:,.0f} ms, mean TTFT {result.ttft_ms.mean:,.0f} ms."
    )


def test_summary_and_table_are_those_of_the_runs() -> None:
    figure = figs.chunked(token_budget=768, rate=2.5, long_percent=30)
    ours, whole = rerun(768, 2.5, 30), rerun(0, 2.5, 30)
    assert sentence("Budget 768", ours) in figure.summary
    assert sentence("No budget", whole) in figure.summary
    assert "Default" not in figure.summary
    assert figure.table is not None
    rows = {row[0]: row for row in figure.table.rows}
    for name, result in (("768", ours), ("none", whole)):
        gaps = [result.itl_ms.percentile(p) for p in (50, 95, 99)]
        assert rows[name][1:5] == [*gaps, result.itl_ms.max]
        assert rows[name][5] == result.ttft_ms.mean


def test_the_default_run_stays_visible() -> None:
    explorer = explore(TARGET, **PARAMS)
    assert "default" not in explorer.figure().svg
    moved = explorer.figure(rate=1.0)
    assert "default" in moved.svg
    assert sentence("Default", rerun(512, 2.0, 15)) in moved.summary


def test_gaps_are_those_of_the_run_around_the_long_prompt() -> None:
    times, lengths = figs.chunked_prefill._gaps(0, 2.0, 15)
    assert times == sorted(times)
    assert times[0] == -0.5
    assert times[-1] <= 3.0
    assert len(times) == len(lengths)
    first = figs.chunked_prefill._order()[0]
    asked = figs.chunked_prefill._requests(2.0, 15)
    assert asked[first].prompt_len == 4096
    # The prompt is taken in by the step that begins next after its arrival, in one piece.
    step = next(i for i, t in enumerate(times) if t >= 0 and lengths[i])
    result = rerun(0, 2.0, 15)
    record = next(r for r in result.records if r.request.id == first)
    assert record.first_token_ns is not None
    assert record.first_scheduled_ns is not None
    assert times[step] == (record.first_scheduled_ns - asked[first].arrival_ns) / NS_PER_S
    assert lengths[step] == (record.first_token_ns - record.first_scheduled_ns) / NS_PER_MS


@pytest.mark.parametrize(("token_budget", "rate", "long_percent"), CORNERS + places())
def test_the_gaps_are_the_steps_in_which_somebody_decodes(
    token_budget: int, rate: float, long_percent: int
) -> None:
    """The figure reads them off the tokens; a run on record tells them as well."""
    for budget in (0, token_budget):
        first = figs.chunked_prefill._order()[0]
        zero = figs.chunked_prefill._requests(rate, long_percent)[first].arrival_ns
        low, high = zero - NS_PER_S // 2, zero + 3 * NS_PER_S
        result = rerun(budget, rate, long_percent, record_steps=True)
        steps = [s for s in result.step_records if any(x.decode for x in s.scheduled)]
        inside = [s for s in steps if s.end_ns > low and s.start_ns < high]
        times, lengths = figs.chunked_prefill._gaps(budget, rate, long_percent)
        starts = [(max(low, s.start_ns) - zero) / NS_PER_S for s in inside]
        assert [(t, n) for t, n in zip(times, lengths, strict=True) if n] == [
            (t, s.cost_ns / NS_PER_MS) for t, s in zip(starts, inside, strict=True)
        ]


def test_a_smaller_budget_cuts_the_tail_and_costs_ttft() -> None:
    """The caption's sentence."""
    table = figs.chunked().table
    assert table is not None
    tail, ttft = ([row[i] for row in table.rows[:-1]] for i in (3, 5))
    assert tail == sorted(tail, key=float)  # type: ignore[arg-type]
    assert ttft == sorted(ttft, key=float, reverse=True)  # type: ignore[arg-type]


def test_the_order_of_the_lengths_does_not_depend_on_a_parameter() -> None:
    few, many = (
        {r.id for r in figs.chunked_prefill._requests(1.0, p) if r.prompt_len > 256}
        for p in (5, 50)
    )
    assert few < many
    assert len(few) == 1
    assert len(many) == 10
    assert few == {r.id for r in figs.chunked_prefill._requests(3.0, 5) if r.prompt_len > 256}


@pytest.mark.parametrize("share", [-1, 101])
def test_a_share_out_of_range_is_one_sentence(share: int) -> None:
    with pytest.raises(InputError, match="long_percent is from 0 to 100"):
        figs.chunked(long_percent=share)


def solution(name: str) -> Any:
    """Return a policy that a solution of the chapter defines."""
    (cell,) = [source for source in CELLS if source.startswith(f"class {name}(")]
    scope: dict[str, Any] = {
        "ss": ss,
        "Chunked": policies.Chunked,
        "OPT_13B_A100": ss.cost.OPT_13B_A100,
        "Work": ss.cost.Work,
    }
    exec(cell, scope)
    return scope[name]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lengths", ["azure_conv", "azure_code"])
def test_no_step_of_the_solution_exceeds_its_target(seed: int, lengths: str) -> None:
    requests = workload.poisson(120, 1.2, lengths, lengths, seed=seed)
    result = ss.simulate(requests, solution("TargetTime")(100), record_steps=True)
    assert len(result.finished) == 120
    assert max(step.cost_ns for step in result.step_records) <= 100 * NS_PER_MS


@pytest.mark.parametrize("name", ["TargetTime", "Turns"])
def test_a_solution_keeps_its_promise_to_repeat(name: str) -> None:
    made = solution(name)
    requests = workload.poisson(60, 1.5, "azure_conv", "azure_conv", seed=1)
    policy = made(100) if name == "TargetTime" else made(512)
    fast, slow = (ss.simulate(requests, policy, skip=skip) for skip in (True, False))
    assert fast.summary() | {"engine_iterations": 0} == slow.summary() | {"engine_iterations": 0}


def test_slices_take_turns_with_decodes() -> None:
    requests = workload.poisson(40, 1.5, "azure_conv", "azure_conv", seed=2)
    result = ss.simulate(requests, solution("Turns")(512), record_steps=True)
    assert len(result.finished) == 40
    assert not any(s.work.prefill_tokens and s.work.decodes for s in result.step_records)


def test_more_curves_than_colors_stay_apart() -> None:
    pytest.importorskip("matplotlib")
    curves = {f"design {i}": [("", 1.0, 2.0), ("", 2.0, 3.0)] for i in range(8)}
    ax = plots.plane(curves, "x", "y")
    assert ax is not None
    looks = [(x.get_color(), str(x.get_linestyle()), x.get_marker()) for x in ax.lines]
    for look in zip(*[(c + s, m) for c, s, m in looks], strict=True):
        assert len(set(look)) == 8
    hollow = [x.get_markerfacecolor() == "none" for x in ax.lines]
    assert hollow == [False] * 6 + [True] * 2


def test_the_plane_names_its_points() -> None:
    pytest.importorskip("matplotlib")
    curves = {"chat": [("none", 200.0, 100.0), ("512", 90.0, 150.0)]}
    ax = plots.plane(curves, "P99 ITL (ms)", "mean TTFT (ms)")
    assert ax is not None
    assert [text.get_text() for text in ax.texts] == ["none", "512"]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    assert ax.get_xlabel() == "P99 ITL (ms)"
