"""The live figure of the request model: arrivals, waiting and service of each request."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from servesim import figs, workload
from servesim.errors import InputError
from servesim.explore import explore

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "requests.md"
TARGET = "servesim.figs:arrivals"
LENGTHS = ["conversation", "code", "fixed", "uniform"]
PARAMS: dict[str, Any] = {
    "rate": (0.25, 2.0, 0.25, 1.0),
    "cv": (0.0, 4.0, 0.5, 2.5),
    "lengths": LENGTHS,
}


def ttfts(figure: figs.svg.Figure) -> dict[str, float]:
    """Return the last column of the table by its first one."""
    assert figure.table is not None
    return {str(row[0]): float(row[-1] or 0) for row in figure.table.rows}


def test_the_chapter_asks_for_these_parameters() -> None:
    text = re.search(r'explore\(\n    "servesim\.figs:arrivals".*?\n\)', CHAPTER.read_text(), re.S)
    assert text is not None
    call = ast.parse(text[0], mode="eval").body
    assert isinstance(call, ast.Call)
    told = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg in PARAMS}
    assert told == PARAMS


def test_defaults_are_the_chapters() -> None:
    takes = inspect.signature(figs.arrivals).parameters
    assert {name: p.default for name, p in takes.items()} == explore(TARGET, **PARAMS).values()


def test_same_bytes_every_time() -> None:
    assert figs.arrivals(rate=0.75, cv=3.0) == figs.arrivals(rate=0.75, cv=3.0)


def test_the_summary_states_the_table_s_numbers() -> None:
    figure = figs.arrivals(rate=1.0, cv=2.5)
    told = ttfts(figure)
    numbers = [
        f"{told[name]:,.0f}"
        for name in ("P50", "P99", "P50 if evenly spaced", "P99 if evenly spaced")
    ]
    a, b, c, d = numbers
    assert f"with gaps of cv 2.5, P50 {a} and P99 {b}" in figure.summary
    assert f"evenly spaced, P50 {c} and P99 {d}." in figure.summary


def test_percentiles_are_those_of_the_rows() -> None:
    told = ttfts(figs.arrivals())
    values = sorted(v for name, v in told.items() if name.startswith("r"))
    assert len(values) == 32
    assert told["P50"] == pytest.approx((values[15] + values[16]) / 2)
    rank = 31 * 0.99
    assert told["P99"] == pytest.approx(values[30] + (values[31] - values[30]) * (rank - 30))


@pytest.mark.parametrize("lengths", LENGTHS)
def test_more_bursts_make_a_worse_tail(lengths: str) -> None:
    told = ttfts(figs.arrivals(rate=1.0, cv=4.0, lengths=lengths))
    assert told["P99"] > 1.5 * told["P99 if evenly spaced"]
    assert told["P50"] > told["P50 if evenly spaced"]


@pytest.mark.parametrize("cv", [0, 0.5, 1, 4])
def test_sliders_move_arrivals_and_nothing_else(cv: float) -> None:
    base = figs.requests._run(1.0, 0, "conversation").records
    moved = figs.requests._run(0.5, cv, "conversation").records
    lengths = [[(r.request.prompt_len, r.request.output_len) for r in x] for x in (base, moved)]
    assert lengths[0] == lengths[1]
    # The same span of time, so the same mean rate, whatever cv is.
    assert [moved[i].request.arrival_ns for i in (0, -1)] == [0, 62_000_000_000]


def test_a_larger_cv_spreads_the_gaps() -> None:
    spread = [
        workload.burstiness([r.request for r in figs.requests._run(1.0, cv, "fixed").records])
        for cv in (0, 0.5, 1, 2, 4)
    ]
    assert spread[0] == 0
    assert spread == sorted(spread)


def test_without_spread_nobody_waits_long() -> None:
    told = ttfts(figs.arrivals(rate=1.0, cv=0.0, lengths="fixed"))
    assert told["P99"] < 1.1 * told["P50"]
    assert "evenly spaced, P50" not in figs.arrivals(cv=0.0).summary


def test_all_kinds_are_drawn() -> None:
    picture = figs.arrivals().svg
    for kind in ("waiting", "prefill", "decode", "arrival"):
        assert f">{kind}<" in picture


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"lengths": "long"}, "use one of conversation"),
        ({"rate": 0.0}, "rate must be a positive number"),
        ({"cv": -1.0}, "cv must be a"),
    ],
)
def test_bad_values_are_refused_in_a_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        figs.arrivals(**given)
