"""The two published toy programs come out of the one engine, to the last digit."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import servesim as ss
from servesim.cli import main
from tests import oracles

REFERENCE = Path(__file__).resolve().parent.parent.parent / "shared" / "reference"
needs_reference = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason="the reference files lie beside the repository, not in it"
)


def golden(name):
    return json.loads((REFERENCE / name).read_text(encoding="utf-8"))


def command(capsys, *argv):
    assert main([*argv, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


# --- system A

HEADER = ["mode", "throughput tok/s", "mean TTFT ms", "P99 ITL ms", "finished"]
TABLE = {
    "NAIVE": ["768", "5870.5", "0.7", "60/60"],
    "STATIC (batch=16, padded)": ["4055", "691.3", "0.7", "60/60"],
    "CONTINUOUS (no chunk)": ["886", "4671.6", "219.3", "60/60"],
    "CONTINUOUS + CHUNKED": ["885", "4591.5", "66.1", "60/60"],
}


def test_toy_prints_the_published_table(capsys):
    assert main(["toy"]) == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert re.split(r"\s{2,}", header) == HEADER
    assert [row[: len(title)] for row, title in zip(rows, TABLE, strict=True)] == list(TABLE)
    printed = [row.split()[-4:] for row in rows]
    assert printed == list(TABLE.values())


@needs_reference
def test_toy_agrees_with_the_reference_for_every_request(capsys):
    assert oracles.differences(command(capsys, "toy"), golden("toy_modes_default.json")) == []


@needs_reference
def test_the_oracle_of_system_a_agrees_with_the_reference():
    assert not oracles.differences(oracles.toy_report(), golden("toy_modes_default.json"))


@pytest.mark.parametrize("n", [1, 2, 15, 16, 17, 33, 60, 128])
@pytest.mark.parametrize("seed", [0, 7, 2024])
def test_toy_agrees_with_the_oracle(capsys, n, seed):
    ours = command(capsys, "toy", "-n", str(n), "--seed", str(seed))
    assert oracles.differences(ours, oracles.toy_report(n, seed)) == []


@given(n=st.integers(1, 50), seed=st.integers(-(10**9), 10**9))
@settings(max_examples=15, derandomize=True, deadline=None)
def test_toy_agrees_with_the_oracle_at_any_size_and_seed(n, seed):
    assert oracles.differences(ss.systems.toy_report(n, seed), oracles.toy_report(n, seed)) == []


def test_toy_prints_the_figures_of_its_json(capsys):
    report = command(capsys, "toy", "-n", "23", "--seed", "3")
    main(["toy", "-n", "23", "--seed", "3"])
    rows = capsys.readouterr().out.splitlines()[1:]
    for row, (name, title) in zip(rows, oracles.TOY_TITLES.items(), strict=True):
        mode = report["modes"][name]
        figures = [
            format(mode["throughput_tok_s"], ".0f"),
            format(mode["mean_ttft_ms"], ".1f"),
            format(mode["p99_itl_ms"], ".1f"),
            "23/23",
        ]
        assert row.startswith(title)
        assert row.split()[-4:] == figures


def test_the_static_groups_of_system_a_would_not_fit_its_kv_cache():
    work = ss.workload.toy()
    groups = [work[i : i + 16] for i in range(0, 60, 16)]
    need = [sum(-(-(r.prompt_len + r.output_len) // 16) for r in group) for group in groups]
    assert need == [3502, 2383, 1525, 2035]
    assert ss.systems.TOY_KV.blocks == 1800


# --- system B


@needs_reference
@pytest.mark.parametrize(
    ("file", "seed"), [("slot_modes_default.json", 20261001), ("slot_modes_seed7.json", 7)]
)
def test_slots_agrees_with_the_reference_for_every_request(capsys, file, seed):
    assert oracles.differences(command(capsys, "slots", "--seed", str(seed)), golden(file)) == []
    assert oracles.differences(oracles.slot_report(seed=seed), golden(file)) == []


@given(
    n=st.integers(1, 90),
    slots=st.integers(1, 20),
    step_us=st.integers(0, 30_000),
    prefill_ns=st.integers(0, 50_000),
    seed=st.integers(-(10**9), 10**9),
)
@example(n=1, slots=1, step_us=0, prefill_ns=0, seed=0)
@example(n=64, slots=8, step_us=8_000, prefill_ns=0, seed=1)
@example(n=64, slots=64, step_us=0, prefill_ns=12_000, seed=2)
@settings(max_examples=25, derandomize=True, deadline=None)
def test_slots_agrees_with_the_oracle_at_any_flags(n, slots, step_us, prefill_ns, seed):
    flags = (n, slots, step_us / 1000, prefill_ns / 1000, seed)
    ours, theirs = ss.systems.slot_report(*flags), oracles.slot_report(*flags)
    assert oracles.differences(ours, theirs) == []


@pytest.mark.parametrize(
    ("flags", "values"),
    [
        ("--requests 17 --slots 3", (17, 3, 8.0, 12.0, 20261001)),
        ("--step-ms 2.5 --seed 4", (64, 8, 2.5, 12.0, 4)),
        ("--prefill-us-per-tok 0.125", (64, 8, 8.0, 0.125, 20261001)),
        (
            "--requests 40 --slots 40 --step-ms 0.5 --prefill-us-per-tok 100 --seed -3",
            (40, 40, 0.5, 100.0, -3),
        ),
    ],
)
def test_slots_takes_its_five_flags(capsys, flags, values):
    ours = command(capsys, "slots", *flags.split())
    assert oracles.differences(ours, oracles.slot_report(*values)) == []


def test_slots_prints_the_published_report(capsys):
    assert main(["slots"]) == 0
    printed = capsys.readouterr().out
    for figure in (
        "23689.5 ms",
        "314.7 tok/s",
        "236.0/12084.3/22636.6 ms",
        "11152.3 ms",
        "8661.5 ms",
        "860.8 tok/s",
        "219.6/3952.8/7486.9 ms",
        "2988.0 ms",
        "7456",
        "coefficient of variation 1.17",
        "2.74x",
    ):
        assert figure in printed


def test_without_its_quirk_system_b_serves_only_who_has_arrived():
    policy = ss.policies.Continuous(max_running=8, prefill_alone=True)
    result = ss.simulate(ss.workload.slots(), policy, cost=ss.cost.SLOTS)
    assert f"{result.makespan_s * 1000:.2f}" == "8663.68"
    assert f"{result.e2e_ms.mean:.2f}" == "3949.76"


def test_static_pays_one_step_more_per_request_than_continuous():
    modes = ss.systems.slot_modes()
    static, continuous = modes["static"], modes["continuous"]
    assert static.output_tokens == continuous.output_tokens == 7456
    for a, b in zip(static.records, continuous.records, strict=True):
        assert len(a.gaps) == a.request.output_len
        assert len(b.gaps) == b.request.output_len - 1


# --- what the comparison itself can see


@pytest.mark.parametrize(
    ("key", "value", "same"),
    [
        ("end_s", 1.0 + 1e-9, True),
        ("end_s", 1.0 + 3e-9, False),
        ("mean_ttft_ms", 1.0 + 1e-6, True),
        ("mean_ttft_ms", 1.0 + 3e-6, False),
        ("throughput_tok_s", 1.0 + 5e-7, True),
        ("throughput_tok_s", 1.0 + 2e-6, False),
        ("finished", 2, False),
        ("missing", None, False),
    ],
)
def test_a_difference_would_be_found(key, value, same):
    theirs = {"rows": [{key: 1 if key == "finished" else 1.0}]}
    assert (oracles.differences({"rows": [{key: value}]}, theirs) == []) is same
    assert oracles.differences({"rows": []}, theirs) != []
    assert oracles.differences({"rows": [{"other": 1.0}]}, theirs) != []
