"""The vllm policy makes every decision that vLLM's own scheduler made, step for step."""

import json

import pytest

from servesim import cli, replay
from tests.vllm_traces import (
    AZURE,
    FILES,
    find,
    load,
    per_request,
    through_json,
    unfinished,
)


def test_the_traces_of_made_workloads_are_here():
    assert len(FILES) == 43
    assert sum(len(load(name)) for name in FILES) == 208
    assert {trace["vllm_version"] for name in FILES for trace in load(name)} == {"0.11.2", "0.33.0"}
    outcomes = {trace["outcome"] for name in FILES for trace in load(name)}
    assert outcomes == {"completed", "stalled", "max_steps"}


@pytest.mark.parametrize("name", FILES + AZURE)
def test_replay_gives_the_recorded_steps(name):
    recorded = load(name)
    for number, (trace, read) in enumerate(zip(recorded, replay.read(find(name)), strict=True)):
        where = f"{name}, trace {number}"
        result = replay.replay(read)
        steps = through_json(replay.steps(result))
        for ours, theirs in zip(steps, trace["steps"], strict=False):
            assert ours == theirs, f"{where}, step {theirs['i']}"
        assert steps == trace["steps"], where
        assert result.outcome == trace["outcome"], where
        known = {row[0]: row for row in trace["per_request"]}
        assert {row[0]: row for row in per_request(result)} == known, where
        assert unfinished(result) == sorted(trace["unfinished"]), where


@pytest.mark.parametrize("name", ["w05_kv_pressure.v0.33.0.json.gz", "small.v0.11.2.jsonl.gz"])
def test_the_command_line_prints_the_steps(name, capsys):
    assert cli.main(["replay", str(find(name))]) == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert printed == [trace["steps"] for trace in load(name)]


def test_the_file_s_own_steps_are_not_read():
    trace = load("w05_kv_pressure.v0.33.0.json.gz")[0]
    blind = {k: trace[k] for k in ("vllm_version", "config", "effective", "arrivals", "requests")}
    assert through_json(replay.steps(replay.replay(blind))) == trace["steps"]
