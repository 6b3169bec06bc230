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


SMALL_TRACE = {
    "format": replay.FORMAT,
    "vllm_version": "0.33.0",
    "arrivals": "arrival_us",
    "requests": [[0, 0, 5, 2, 0]],
    "effective": {"long_prefill_token_threshold": 0},
    "config": {
        **dict.fromkeys(("max_num_seqs", "max_num_batched_tokens", "num_gpu_blocks"), 8),
        **dict.fromkeys(("cost_prefill_us", "cost_decode_us", "cost_base_us"), 40),
        "block_size": 4,
        "enable_chunked_prefill": True,
        "policy": "fcfs",
        "max_model_len": 64,
        "max_steps": 99,
        "stall_steps": 3,
    },
}


def told(trace, tmp_path, capsys):
    file = tmp_path / "t.json"
    file.write_text(json.dumps(trace), encoding="utf-8")
    status = cli.main(["replay", str(file)])
    return status, *capsys.readouterr()


@pytest.mark.parametrize(
    ("part", "value", "says"),
    [
        ("config", None, "'config' is None, not a JSON object"),
        ("effective", [], "'effective' is [], not a JSON object"),
        ("requests", "x", "'requests' is 'x', not a JSON list"),
        ("requests", [], "the workload is empty"),
        ("requests", [[0, 1, 2]], "a request is [0, 1, 2], not five whole numbers"),
        ("requests", [[0, 0.5, 5, 2, 0]], "a request is [0, 0.5, 5, 2, 0], not five whole numbers"),
        ("requests", [[0, 0, 5, 2, 10**30]], "priority must be a whole number of at most 64 bits"),
        ("requests", [[0, 0, 0, 2, 0]], "prompt_len must be a whole number of tokens"),
        ("arrivals", 5, "arrivals are 5, not arrival_us or arrival_step"),
        ("vllm_version", ["0.33.0"], "vllm_version is ['0.33.0']; known are 0.11.2, 0.33.0"),
    ],
)
def test_a_faulty_trace_is_one_sentence(tmp_path, capsys, part, value, says):
    status, out, err = told({**SMALL_TRACE, part: value}, tmp_path, capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "t.json: " in err
    assert says in err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, None) for key in SMALL_TRACE["config"]),
        *((key, "x") for key in SMALL_TRACE["config"]),
        ("max_model_len", -1),
        ("max_steps", 1.5),
        ("stall_steps", 0),
        ("enable_chunked_prefill", 1),
        ("scheduler_reserve_full_isl", "no"),
        ("watermark", None),
        ("watermark", 1),
        ("cost_base_us", float("nan")),
        ("cost_base_us", 1.5),
        ("num_gpu_blocks", 10.0),
    ],
)
def test_a_faulty_setting_is_one_sentence(tmp_path, capsys, key, value):
    config = {**SMALL_TRACE["config"], key: value}
    status, out, err = told({**SMALL_TRACE, "config": config}, tmp_path, capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "t.json: " in err
    assert key in err


def test_the_older_release_has_no_watermark_whatever_its_config_says(tmp_path, capsys):
    config = {**SMALL_TRACE["config"], "watermark": None}
    trace = {**SMALL_TRACE, "config": config, "vllm_version": "0.11.2"}
    assert told(SMALL_TRACE, tmp_path, capsys) == told(trace, tmp_path, capsys)


@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "BOM"])
def test_json_lines_end_where_json_says(tmp_path, end, mark):
    lines = [json.dumps({**SMALL_TRACE, "desc": "a\u2028b\x85"}, ensure_ascii=False)] * 2
    file = tmp_path / "t.jsonl"
    file.write_bytes((mark + end.join([*lines, ""])).encode())
    first, second = (replay.steps(replay.replay(trace)) for trace in replay.read(file))
    assert first == second
