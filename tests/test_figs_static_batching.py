"""The live figure of static batching, and the policies that its chapter's solutions define."""

import random
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import jupytext
import pytest

import servesim as ss
from servesim import figs, spec
from servesim.explore import Explorer, explore
from tools.golden import MYST, code_cells

CHAPTER = Path(__file__).resolve().parent.parent / "chapters" / "static-batching.md"
CELLS = [cell.source for cell in code_cells(jupytext.read(CHAPTER, fmt=MYST))]
DEFAULT = {"batch_size": 4, "spread": 125, "rate": 0.5}
CORNERS = [(b, s, r) for b in (1, 16) for s in (0, 170) for r in (0.1, 2.0)]


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


def test_the_chapter_starts_with_the_functions_defaults() -> None:
    shown = figure_of_the_chapter()
    assert shown.values() == DEFAULT
    assert shown.figure().with_id("x").svg == figs.static_waste().with_id("x").svg


def test_same_values_same_bytes() -> None:
    again = figs.static_waste(**DEFAULT)  # type: ignore[arg-type]
    assert figs.static_waste().to_html() == again.to_html()


def random_places() -> list[tuple[int, int, float]]:
    rng = random.Random(1)
    return [
        (rng.randint(1, 16), 5 * rng.randint(0, 34), rng.randint(1, 20) / 10) for _ in range(20)
    ]


@pytest.mark.parametrize(("batch_size", "spread", "rate"), CORNERS + random_places())
def test_every_place_of_the_sliders(batch_size: int, spread: int, rate: float) -> None:
    shown = figure_of_the_chapter()
    shown.set(batch_size=batch_size, spread=spread, rate=rate)
    assert shown.message == ""
    figure = shown.figure()
    ET.fromstring(figure.svg)
    assert figure.table is not None

    wasted = told(figure.summary, r": ([\d.]+) % of the slot-steps are idle")
    idle = sum(row[6] for row in figure.table.rows)  # type: ignore[misc]
    tokens = sum(row[5] for row in figure.table.rows)  # type: ignore[misc]
    assert wasted == pytest.approx(100 * idle / (idle + tokens), abs=0.051)
    assert (wasted == 0) == (batch_size == 1 or spread == 0)
    ttft = told(figure.summary, r"mean TTFT ([\d.]+) s")
    assert told(figure.summary, r"of which ([\d.]+) s") <= ttft


def test_the_summary_says_what_the_run_gave() -> None:
    plain = figs.static_batching._run(**DEFAULT)  # type: ignore[arg-type]
    asked = [record.request for record in plain.records]
    policy = ss.policies.Static(DEFAULT["batch_size"])
    result = ss.simulate(asked, policy, record_steps=True)
    idle = sum(step.idle_slots for step in result.step_records)
    tokens = result.output_tokens
    summary = figs.static_waste().summary
    share = told(summary, r": ([\d.]+) % of the slot")
    assert share == pytest.approx(100 * idle / (idle + tokens), abs=0.051)
    ttft = result.ttft_ms.mean
    assert ttft is not None
    assert told(summary, r"mean TTFT ([\d.]+) s") == pytest.approx(ttft / 1000, abs=0.0051)


def test_only_the_rate_moves_arrivals_and_only_the_spread_moves_lengths() -> None:
    base = figs.static_batching._run(4, 125, 0.5)
    for other, same in (
        (figs.static_batching._run(8, 125, 0.5), ("arrival_ns", "output_len")),
        (figs.static_batching._run(4, 30, 0.5), ("arrival_ns",)),
        (figs.static_batching._run(4, 125, 2.0), ("output_len",)),
    ):
        for a, b in zip(base.records, other.records, strict=True):
            assert all(getattr(a.request, k) == getattr(b.request, k) for k in same)


def test_the_formula_is_one_minus_mean_over_expected_longest() -> None:
    # Two requests of 174, 175 or 176 tokens: the longest is 174, 175, 176 in 1, 3, 5 cases of 9.
    longest = (174 + 3 * 175 + 5 * 176) / 9
    assert figs.static_batching._formula(2, 1) == pytest.approx(100 * (1 - 175 / longest))
    assert figs.static_batching._formula(1, 125) == pytest.approx(0)


@pytest.mark.parametrize("spread", [-5, 175])
def test_lengths_must_stay_positive(spread: int) -> None:
    with pytest.raises(ss.InputError, match="spread is from 0 to 174"):
        figs.static_waste(spread=spread)


# -- what the chapter's solutions define ----------------------------------------------------------


def solution(name: str) -> str:
    """Return the cell that defines a policy."""
    (cell,) = [source for source in CELLS if f"class {name}(" in source]
    return cell


@pytest.fixture
def impatient(tmp_path: Path) -> Path:
    """The file that the exercise asks for."""
    path = tmp_path / "impatient.py"
    path.write_text(solution("Impatient") + "\n")
    return path


def test_a_patient_one_is_static_batching(impatient: Path) -> None:
    requests = ss.workload.poisson(n=40, rate=0.5, prompt="azure_conv", output=(1, 60), seed=3)
    never = spec.policy(f"{impatient}:Impatient:batch_size=8,timeout_ms=1e12")
    a, b = (ss.simulate(requests, p) for p in (never, ss.policies.Static(8)))
    assert [r.first_token_ns for r in a.records] == [r.first_token_ns for r in b.records]
    assert a.end_ns == b.end_ns


def test_an_impatient_one_waits_for_nobody(impatient: Path) -> None:
    requests = ss.workload.poisson(n=40, rate=0.5, output=(1, 60), seed=3)
    result = ss.simulate(requests, spec.policy(f"{impatient}:Impatient:timeout_ms=0"))
    first = result.records[0]
    assert first.first_scheduled_ns == first.request.arrival_ns


def test_the_exercises_commands_run(impatient: Path) -> None:
    text = CHAPTER.read_text(encoding="utf-8")
    (block,) = re.findall(r"(?s)~~~bash\n(.*?)~~~", text)
    commands = block.replace("\\\n", " ").strip().splitlines()
    assert len(commands) == 2
    for command in commands:
        python, *arguments = command.split()
        assert python == "python"
        run = subprocess.run(
            [sys.executable, *arguments], cwd=impatient.parent, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr
        assert "Impatient" in run.stdout


def test_sorting_wastes_less() -> None:
    names: dict[str, type[ss.policies.Static]] = {}
    cell = solution("Sorted").split("\nsorting")[0]
    exec(cell, {"Static": ss.policies.Static, "ss": ss}, names)
    requests = ss.workload.poisson(n=64, rate=1e6, output=(50, 300), seed=1)
    plain, ordered = (
        ss.simulate(requests, p) for p in (ss.policies.Static(16), names["Sorted"](16))
    )
    assert ordered.makespan_ns < plain.makespan_ns
    assert ordered.output_tokens == plain.output_tokens
