"""Naive serving against queueing theory: the live figure, Lindley's recursion, the mean wait."""

from __future__ import annotations

import itertools
import math
import random
import xml.etree.ElementTree as ET
from itertools import pairwise
from pathlib import Path
from typing import Any

import jupytext
import pytest

import servesim as ss
from servesim import figs
from servesim.explore import Explorer, explore
from servesim.policies import Naive
from servesim.workload import Lengths
from tools.golden import MYST, code_cells

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "naive.md"
CELLS = [cell.source for cell in code_cells(jupytext.read(CHAPTER, fmt=MYST))]
DEFAULT = {"rate": 0.2, "spread": 0.5}
CORNERS = list(itertools.product((0.02, 0.28, 0.3), (0.0, 2.5)))


def figure_of_the_chapter() -> Explorer:
    """Run the cell of the chapter that shows the figure."""
    (cell,) = [source for source in CELLS if source.startswith("explore(")]
    found = eval(cell, {"explore": explore})
    assert isinstance(found, Explorer)
    return found


def random_places() -> list[tuple[float, float]]:
    rng = random.Random(3)
    return [(rng.randint(1, 15) / 50, rng.randint(0, 10) / 4) for _ in range(20)]


def test_the_chapter_starts_with_the_functions_defaults() -> None:
    shown = figure_of_the_chapter()
    assert shown.values() == DEFAULT
    assert shown.figure().with_id("x").svg == figs.naive_load().with_id("x").svg


def test_same_values_same_bytes() -> None:
    first = figs.naive_load().to_html()
    figs.naive._waits.cache_clear()
    assert figs.naive_load(**DEFAULT).to_html() == first


@pytest.mark.parametrize(("rate", "spread"), CORNERS + random_places())
def test_every_place_of_the_sliders(rate: float, spread: float) -> None:
    shown = figure_of_the_chapter()
    shown.set(rate=rate, spread=spread)
    assert shown.message == ""
    figure = shown.figure()
    ET.fromstring(figure.svg)
    assert figure.table is not None
    value = {str(row[0]): row[1] for row in figure.table.rows}
    runs = [float(value[f"run {i}"] or 0) for i in range(8)]
    mean = math.fsum(runs) / 8
    assert value["mean"] == pytest.approx(mean)
    half = 2.365 * math.sqrt(math.fsum((m - mean) ** 2 for m in runs) / 7 / 8)
    assert f"requests it is {mean:.2f} ± {half:.2f} s" in figure.summary
    theory = value["theory"]
    if theory is None:
        assert "theory has no mean wait" in figure.summary
    else:
        assert f"theory says a mean wait of {theory:.2f} s" in figure.summary


@pytest.mark.parametrize(("rate", "spread"), [*CORNERS, (0.2, 0.5), (0.14, 1.25)])
def test_the_eight_runs_are_the_simulators(rate: float, spread: float) -> None:
    short, *_, long = figs.naive._lengths(spread)
    for seed, waits in enumerate(figs.naive._waits(rate, spread)):
        requests = ss.workload.poisson(250, rate, 512, [short] * 9 + [long], seed)
        assert waits == [wait / 1e9 for wait in waits_ns(ss.simulate(requests, Naive()))]


@pytest.mark.parametrize("spread", [i / 4 for i in range(11)])
def test_the_spread_is_the_coefficient_of_variation(spread: float) -> None:
    short, *_, long = figs.naive._lengths(spread)
    mean = 0.9 * short + 0.1 * long
    deviation = math.sqrt(0.9 * short**2 + 0.1 * long**2 - mean**2)
    assert mean == pytest.approx(175, abs=1)
    assert deviation / mean == pytest.approx(spread, abs=0.02)


@pytest.mark.parametrize("spread", [-0.1, 2.6])
def test_the_spread_has_limits(spread: float) -> None:
    with pytest.raises(ss.InputError, match=r"from 0 to 2\.5"):
        figs.naive_load(spread=spread)


# -- theory ---------------------------------------------------------------------------------------


def service_s(output_len: int) -> float:
    return ss.simulate([ss.Request(0, 0, 512, output_len)], Naive()).end_ns / 1e9


def waits_ns(result: ss.Result) -> list[int]:
    return [(r.first_scheduled_ns or 0) - r.request.arrival_ns for r in result.records]


@pytest.mark.parametrize("rate", [0.05, 0.2, 0.4])
@pytest.mark.parametrize("prompt", [512, "azure_conv"])
def test_lindleys_recursion_holds_to_the_nanosecond(rate: float, prompt: Lengths) -> None:
    requests = ss.workload.poisson(300, rate, prompt, (1, 300), seed=5)
    result = ss.simulate(requests, Naive())
    waits = [0]
    for a, b in pairwise(result.records):
        service = (a.last_token_ns or 0) - (a.first_scheduled_ns or 0)
        waits.append(max(0, waits[-1] + service - (b.request.arrival_ns - a.request.arrival_ns)))
    assert waits == waits_ns(result)


# Student's t for 19 degrees of freedom: 99 % of the intervals of twenty normal means hold the
# true one. The seeds are fixed, so this cannot fail by chance from one day to the next.
RUNS, T_99 = 20, 2.861


@pytest.mark.parametrize("load", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("lengths", [[175], [*range(50, 301)], [29] * 9 + [1488]])
def test_the_mean_wait_is_pollaczek_and_khinchines(load: float, lengths: list[int]) -> None:
    times = [service_s(n) for n in lengths]
    first, second = (math.fsum(t**k for t in times) / len(times) for k in (1, 2))
    rate = load / first
    theory = rate * second / (2 * (1 - load))
    means = []
    for seed in range(RUNS):
        result = ss.simulate(ss.workload.poisson(500, rate, 512, lengths, 7000 + seed), Naive())
        means.append(sum(waits_ns(result)[100:]) / 400 / 1e9)
    mean = math.fsum(means) / RUNS
    half = T_99 * math.sqrt(math.fsum((m - mean) ** 2 for m in means) / (RUNS - 1) / RUNS)
    assert mean - half <= theory <= mean + half


def test_above_saturation_the_wait_grows_with_every_request() -> None:
    mean = sum(map(service_s, range(50, 301))) / 251
    result = ss.simulate(ss.workload.poisson(2000, 1.5 / mean, 512, (50, 300), 2), Naive())
    drift_s = waits_ns(result)[-1] / 1e9 / 2000
    assert drift_s == pytest.approx(mean * (1 - 1 / 1.5), rel=0.1)


# -- what the chapter's solutions define ----------------------------------------------------------

ORDERS = ("ShortestFirst", "NewestFirst")


def solutions() -> dict[str, Any]:
    (cell,) = [source for source in CELLS if "class ShortestFirst" in source]
    names: dict[str, Any] = {"Naive": Naive, "ss": ss}
    exec(cell, names)
    return names


def test_the_order_changes_who_waits_not_how_much_work_there_is() -> None:
    requests = ss.workload.poisson(400, 0.25, 512, [29] * 9 + [1488], seed=4)
    names = solutions()
    runs = [ss.simulate(requests, p) for p in (Naive(), *(names[n]() for n in ORDERS))]
    ends = {run.end_ns for run in runs}
    assert len(ends) == 1
    naive, shortest, newest = (sum(waits_ns(run)) for run in runs)
    assert shortest < 0.6 * naive
    assert newest == pytest.approx(naive, rel=0.5)
    assert max(waits_ns(runs[2])) > max(waits_ns(runs[0]))


def test_the_solutions_serve_one_at_a_time() -> None:
    requests = ss.workload.poisson(30, 1.0, 64, (1, 20), seed=4)
    names = solutions()
    for name in ORDERS:
        result = ss.simulate(requests, names[name](), record_steps=True)
        assert result.count("finished") == 30
        assert all(len(step.scheduled) == 1 for step in result.step_records)
