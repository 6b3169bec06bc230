"""The live figure of vLLM's steps, and what its chapter uses of the package."""

from __future__ import annotations

import itertools
import random
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jupytext
import pytest

from servesim import figs, replay, spec
from servesim.book import source
from servesim.errors import InputError
from servesim.policies import VLLM
from tools.golden import MYST

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "chapters" / "data"
CHAPTER = ROOT / "chapters" / "vllm.md"
DEFAULTS: dict[str, Any] = {
    "step": 25,
    "max_num_batched_tokens": 64,
    "num_gpu_blocks": 20,
    "watermark": 0.05,
    "release": "0.33.0",
}
ENDS: dict[str, tuple[Any, ...]] = {
    "step": (0, 60),
    "max_num_batched_tokens": (16, 128),
    "num_gpu_blocks": (10, 40),
    "watermark": (0.0, 0.5),
    "release": ("0.33.0", "0.11.2"),
}
CORNERS = [dict(zip(ENDS, corner, strict=True)) for corner in itertools.product(*ENDS.values())]
RNG = random.Random(3)
INNER = [
    {
        "step": RNG.randint(0, 60),
        "max_num_batched_tokens": 16 * RNG.randint(1, 8),
        "num_gpu_blocks": RNG.randint(10, 40),
        "watermark": RNG.randint(0, 10) / 20,
        "release": RNG.choice(ENDS["release"]),
    }
    for _ in range(20)
]


def recorded(variant: str, name: str = "small021") -> dict[str, Any]:
    traces = replay.read(DATA / f"small.{variant}.jsonl.gz")
    return next(trace for trace in traces if trace["name"] == name)


# -- the figure -----------------------------------------------------------------------------------


@pytest.mark.parametrize("values", [DEFAULTS, *CORNERS, *INNER], ids=str)
def test_every_setting_can_be_drawn(values: dict[str, Any]) -> None:
    figure = figs.vllm_steps(**values, ghost=DEFAULTS)
    ET.fromstring(figure.svg)
    assert figure.table is not None
    assert "nan" not in figure.svg
    # Whatever the settings, the nine requests are served, and all blocks come back.
    finished = [rid for row in figure.table.rows for rid in str(row[4]).split() if rid != "-"]
    assert sorted(finished) == [f"r{i}" for i in range(9)]
    assert figure.table.rows[-1][7] == values["num_gpu_blocks"] - 1


def test_the_same_arguments_give_the_same_bytes() -> None:
    first = figs.vllm_steps(**DEFAULTS)
    figs.vllm._run.cache_clear()
    again = figs.vllm_steps(**DEFAULTS)
    assert first.svg == again.svg
    assert first.summary == again.summary


@pytest.mark.parametrize(("release", "variant"), [("0.33.0", "v0.33.0-wm5"), ("0.11.2", "v0.11.2")])
def test_the_defaults_are_the_recorded_run_of_vllm(release: str, variant: str) -> None:
    trace = recorded(variant)
    budget, blocks = (DEFAULTS[key] for key in ("max_num_batched_tokens", "num_gpu_blocks"))
    result = figs.vllm._run(budget, blocks, DEFAULTS["watermark"], release)
    assert replay.steps(result) == trace["steps"]


def test_the_summary_tells_the_recorded_step_and_run() -> None:
    trace, summary = recorded("v0.33.0-wm5"), figs.vllm_steps(**DEFAULTS).summary
    step = trace["steps"][25]
    given = ", ".join(f"r{rid} {tokens}" for rid, tokens, _ in step["s"])
    assert f"Step 25 of 0 to {len(trace['steps']) - 1} schedules {given}; " in summary
    assert "r7 preempted, so nobody is admitted" in summary
    before, after, end = step["b"]
    assert f"free blocks {before} before the plan, {after} after it, {end} at the end" in summary
    assert "Whole run: 1 preemption, " in summary
    once = sum(r[2] + r[3] - 1 for r in trace["requests"])
    again = sum(n for s in trace["steps"] for _, n, _ in s["s"]) - once
    assert f", {again} tokens computed again" in summary
    arrivals = {r[0]: r[1] for r in trace["requests"]}
    ttft = [first - arrivals[rid] for rid, _, first, _, _ in trace["per_request"]]
    assert f"mean TTFT {sum(ttft) / len(ttft) / 1000:.1f} ms" in summary


def test_a_request_that_is_held_back_is_named_with_its_reason() -> None:
    assert "r3 waits: needs 8 blocks, 3 free" in figs.vllm_steps(step=3).summary


def test_a_step_after_the_end_is_the_last_one() -> None:
    assert "Step 48 of 0 to 48" in figs.vllm_steps(step=1000).summary


@pytest.mark.parametrize("wrong", [{"step": -1}, {"release": "0.1"}, {"watermark": 1.5}], ids=str)
def test_values_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        figs.vllm_steps(**wrong)


def test_the_chapter_starts_with_the_defaults() -> None:
    (cell,) = (
        cell.source
        for cell in jupytext.read(CHAPTER, fmt=MYST).cells
        if cell.cell_type == "code" and '"servesim.figs:vllm_steps"' in cell.source
    )
    for name, value in DEFAULTS.items():
        if name == "release":
            assert f'release=["{value}", ' in cell
            continue
        low, high = ENDS[name]
        found = re.search(rf"{name}=\(([^)]*)\)", cell)
        assert found
        numbers = [float(x) for x in found[1].split(",")]
        assert [numbers[0], numbers[1], numbers[3]] == [low, high, value]


# -- what the chapter uses of the package ----------------------------------------------------------


def test_no_difference_where_there_is_none() -> None:
    trace = recorded("v0.33.0-wm5")
    assert replay.first_difference(replay.replay(trace), trace) is None


def test_the_first_difference_is_the_first() -> None:
    trace = recorded("v0.33.0-wm5")
    for changed in (7, 30):
        trace["steps"][changed] = {**trace["steps"][changed], "w": [99]}
    assert replay.first_difference(replay.replay(trace), trace) == 7


def test_a_recording_that_is_shorter_differs_where_it_ends() -> None:
    trace = recorded("v0.33.0-wm5")
    trace["steps"] = trace["steps"][:40]
    assert replay.first_difference(replay.replay(trace), trace) == 40


def test_a_broken_policy_is_found_out() -> None:
    class BackOfQueue(VLLM):
        def new_queue(self, step: Any) -> list[int]:
            stay = [r.id for r in step.view.waiting if r.id not in step.tokens]
            return stay + [r.id for r in step.preempted]

    trace = recorded("v0.33.0-wm5")
    assert replay.first_difference(replay.replay(trace, BackOfQueue), trace) == 25


def test_source_shows_the_lines_asked_for() -> None:
    shown = source(VLLM.serve_running, "tokens = min", "victim = None").code.splitlines()
    assert shown[0] == "# servesim.policies.vllm.VLLM.serve_running"
    assert shown[1].startswith("tokens = min(")
    assert shown[2] == "victim = None"
    assert len(shown) == 3


def test_source_shows_the_whole_without_limits_and_as_markdown() -> None:
    shown = source(VLLM.victim)
    assert shown.code.splitlines()[1].startswith("def victim(")
    assert shown._repr_markdown_() == f"```python\n{shown!r}\n```"


def test_source_names_the_reader_s_own_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("class Mine:\n    def plan(self, view):\n        ...\n", encoding="utf-8")
    mine = type(spec.policy(f"{file}:Mine"))
    assert source(mine).code.splitlines()[:2] == ["# mine.py, Mine", "class Mine:"]


def test_source_says_when_the_code_has_changed() -> None:
    with pytest.raises(InputError, match=r"no line of .* holds 'not there'"):
        source(VLLM.victim, "not there")
    with pytest.raises(InputError, match="'nor this'"):
        source(VLLM.victim, "def victim", "nor this")
