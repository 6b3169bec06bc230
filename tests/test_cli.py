"""The command line: what it prints, and one clear sentence for whatever is wrong."""

import gzip
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import servesim as ss
from servesim.cli import main
from servesim.policies import BUILT_IN

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT.parent / "shared" / "traces"
needs_traces = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the traces lie beside the repository, not in it"
)
SMALL = ("--workload", "poisson:n=5,prompt=20,output=3")


@pytest.fixture
def told(capsys):
    """Return a function that runs a command and returns status, stdout and stderr."""

    def told(*argv):
        status = main([str(a) for a in argv])
        return status, *capsys.readouterr()

    return told


@pytest.fixture
def json_of(told):
    def json_of(*argv):
        status, out, err = told(*argv, "--json")
        assert (status, err) == (0, "")
        return json.loads(out, parse_constant=lambda c: pytest.fail(f"{c} is no JSON"))

    return json_of


def servesim(*argv, **options):
    return subprocess.run(
        [sys.executable, "-m", "servesim", *map(str, argv)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


# --- run

STUDENT = """\
import servesim as ss


class ShortestPrompt:
    def __init__(self, places=4):
        self.places = places

    def plan(self, view):
        plan, free = ss.Plan(), view.free_blocks
        queue = sorted(view.waiting, key=lambda r: r.prompt_len)
        for r in [*view.running, *queue][: self.places]:
            need = view.blocks_needed(r, r.missing)
            if need <= free:
                free -= need
                plan.scheduled.append((r.id, r.missing))
        return plan
"""


@pytest.fixture
def student(tmp_path):
    path = tmp_path / "my policy.py"
    path.write_text(STUDENT, encoding="utf-8")
    return path


@pytest.mark.parametrize("policy", BUILT_IN)
def test_every_built_in_policy_runs(json_of, policy):
    row = json_of("run", "--policy", policy, *SMALL)
    assert (row["requests"], row["finished"], row["rejected"]) == (5, 5, 0)
    assert row["output_tokens"] == 15


def test_run_gives_what_simulate_gives(json_of):
    row = json_of(
        *("run", "--policy", "chunked:token_budget=64,max_running=3"),
        *("--workload", "gamma:n=20,rate=2,cv=3,prompt=50-90,output=5|9,seed=4"),
        *("--cost", "affine:base_ms=5,prefill_us=100,decode_us=50,context_ns=20"),
        *("--kv-blocks", "30", "--block-size", "8", "--slo", "ttft_ms=100,tpot_ms=6.5"),
    )
    result = ss.simulate(
        ss.workload.gamma(20, 2, 3, (50, 90), [5, 9], seed=4),
        ss.policies.Chunked(token_budget=64, max_running=3),
        cost=ss.cost.Affine(base_ms=5, prefill_us=100, decode_us=50, context_ns=20),
        kv=ss.KVCache(30, 8),
    )
    assert row == json.loads(json.dumps(result.summary(ss.SLO(100, 6.5))))
    assert 0 < row["attainment"] < 1


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--workload", "toy"),
        ("--workload", "toy:n=3"),
        ("--workload", "slots:n=3,seed=1"),
        ("--workload", "poisson:n=3,prompt=azure_code,output=azure_conv"),
        ("--cost", "toy"),
        ("--cost", "slots"),
        ("--cost", "opt-13b-a100"),
        ("--cost", "roofline:model=llama-3-70b,gpu=a100,gpus=8"),
        ("--cost", "affine"),
        ("--slo", "llama-2-70b"),
        ("--slo", "tpot_ms=50"),
    ],
)
def test_run_takes_these(json_of, flag, value):
    row = json_of("run", "--policy", "continuous:max_running=8", flag, value)
    assert row["finished"] == row["requests"] > 0
    assert (row["attainment"] is None) is (flag != "--slo")


def test_run_prints_lines_for_a_person(told):
    status, out, err = told("run", "--policy", "naive", *SMALL, "--slo", "llama-3.1-8b")
    assert (status, err) == (0, "")
    for word in ("policy", "Naive()", "throughput", "attainment", "goodput", "TTFT", "E2E", "p99"):
        assert word in out
    status, out, _ = told(
        *("run", "--policy", "naive", "--kv-blocks", "1", "--never-fits", "reject"), *SMALL
    )
    assert status == 0
    assert re.search(r"rejected +5 ", out)


def test_a_csv_and_a_packed_jsonl_are_workloads(json_of, tmp_path):
    plain, packed = tmp_path / "w.csv", tmp_path / "w.jsonl.gz"
    plain.write_text("arrival_s,prompt_len,output_len\n1,20,3\n1,20,3\n", encoding="utf-8")
    line = b'{"timestamp": 1000, "input_length": 20, "output_length": 3}\n'
    packed.write_bytes(gzip.compress(2 * line))
    rows = [json_of("run", "--policy", "naive", "--workload", path) for path in (plain, packed)]
    assert rows[0] == rows[1]
    assert rows[0]["requests"] == 2


@needs_traces
def test_the_azure_trace_is_served_to_the_last_row(json_of):
    trace = TRACES / "AzureLLMInferenceTrace_conv.csv"
    row = json_of("run", "--policy", "chunked", "--workload", trace)
    assert row["finished"] == row["requests"] == 19_366


@needs_traces
def test_the_mooncake_trace_reports_the_rejected(json_of):
    row = json_of(
        *("run", "--policy", "chunked", "--kv-blocks", "1800", "--never-fits", "reject"),
        *("--workload", TRACES / "mooncake_synthetic_trace.jsonl.gz"),
    )
    assert row["requests"] == 3_993
    assert row["rejected"] > 0
    assert row["finished"] + row["rejected"] == 3_993
    assert row["kv"]["peak_blocks"] <= 1800


# --- compare


def test_compare_gives_one_row_per_policy(json_of, told, student):
    policies = ("naive", "static:batch_size=2", "continuous", f"{student}:ShortestPrompt:places=2")
    argv = [part for policy in policies for part in ("--policy", policy)]
    rows = json_of("compare", *argv, *SMALL, "--slo", "llama-2-70b")
    alone = [json_of("run", "--policy", p, *SMALL, "--slo", "llama-2-70b") for p in policies]
    assert rows == alone
    status, out, _ = told("compare", *argv, *SMALL)
    assert status == 0
    header, *lines = out.splitlines()
    assert header.startswith("policy")
    assert len(lines) == 4
    assert lines[3].startswith("ShortestPrompt")


# --- a student's policy


def test_a_student_s_policy_is_short_and_runs_like_a_built_in_one(json_of, student):
    assert len(STUDENT.splitlines()) <= 20
    row = json_of("run", "--policy", f"{student}:ShortestPrompt", *SMALL, "--kv-blocks", "4")
    assert row["policy"] == "ShortestPrompt"
    assert row["finished"] == 5


def test_a_student_s_options_reach_the_class(json_of, student):
    one, four = (
        json_of("run", "--policy", f"{student}:ShortestPrompt:places={n}", "--workload", "toy")
        for n in (1, 4)
    )
    assert one["mean_running"] == pytest.approx(1)
    assert four["mean_running"] > 2


def test_a_policy_file_may_use_dataclasses_and_keep_notes(json_of, tmp_path):
    path = tmp_path / "notes.py"
    path.write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass, field\n"
        "import servesim as ss\n\n"
        "@dataclass\n"
        "class Notes:\n"
        "    seen: dict[int, int] = field(default_factory=dict)\n\n"
        "    def plan(self, view):\n"
        "        for r in view.waiting:\n"
        "            assert r.id not in self.seen, 'the notes of another run'\n"
        "        self.seen.update({r.id: view.step for r in view.waiting})\n"
        "        return ss.Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])\n",
        encoding="utf-8",
    )
    argv = ("--policy", f"{path}:Notes", "--policy", f"{path}:Notes")
    first, second = json_of("compare", *argv, *SMALL)
    assert first == second


def failing(tmp_path, body):
    path = tmp_path / "broken.py"
    path.write_text(f"import servesim as ss\n\n{body}", encoding="utf-8")
    return path


def shows_only(err, path, *lines):
    """Check that a traceback shows these lines of the student's file and no file of ours."""
    assert re.findall(r'File "(.*)", line (\d+)', err) == [(str(path), str(n)) for n in lines]
    assert f"at {path}, line {lines[-1]}" in err
    assert str(ROOT / "code") not in err


IN_A_HELPER = """\
class Broken:
    def plan(self, view):
        plan = ss.Plan()
        for r in [*view.running, *view.waiting]:
            plan.scheduled.append(self.pair(r))
        return plan

    def pair(self, r):
        return r.id, {0: r.missing, 1: 1}[r.produced]
"""


@pytest.mark.parametrize("command", ["run", "compare"])
def test_an_exception_shows_the_student_s_line_step_and_request(told, tmp_path, command):
    path = failing(tmp_path, IN_A_HELPER)
    requests = tmp_path / "w.csv"
    requests.write_text("arrival_s,prompt_len,output_len\n0,5,1\n0,5,9\n", encoding="utf-8")
    status, out, err = told(command, "--policy", f"{path}:Broken", "--workload", requests)
    assert (status, out) == (1, "")
    shows_only(err, path, 7, 11)
    assert "return r.id, {0: r.missing, 1: 1}[r.produced]" in err
    assert "step 2, request 1" in err
    assert "KeyError: 2" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("body", "line", "error"),
    [
        ("x = undefined\n", 3, "NameError"),
        ("import no_such_module_here\n", 3, "ModuleNotFoundError"),
        ("import sys\nsys.exit()\n", 4, "SystemExit"),
        ("class Broken:\n    def __init__(self):\n        raise SystemExit\n", 5, "SystemExit"),
        ("class Broken:\n    def plan(self, view):\n        raise SystemExit(0)\n", 5, "Exit: 0"),
        ("class Broken:\n    def plan(self, view):\n        view.waiting[9]\n", 5, "IndexError"),
        (
            "class Broken:\n    def plan(self, view):\n        view.blocks_needed(None, 1)\n",
            5,
            "AttributeError",
        ),
        (
            "class Broken:\n    def plan(self, view):\n        view.clock_ns += 1\n"
            "        view.waiting[0].computed = 1\n",
            6,
            "FrozenInstanceError",
        ),
        ("class Broken:\n    @property\n    def plan(self):\n        1 / 0\n", 6, "ZeroDivision"),
        (
            "class Broken:\n    def plan(self, view):\n        raise Odd\n"
            "class Odd(Exception):\n    def __str__(self):\n        1 / 0\n",
            5,
            "Odd",
        ),
    ],
)
def test_an_exception_shows_the_student_s_line_and_none_of_ours(told, tmp_path, body, line, error):
    path = failing(tmp_path, body)
    status, out, err = told("run", "--policy", f"{path}:Broken", *SMALL)
    assert (status, out) == (1, "")
    shows_only(err, path, line)
    assert error in err.splitlines()[-1]


def test_the_line_named_is_the_student_s_and_not_a_library_s(told, tmp_path):
    path = failing(
        tmp_path,
        "import json\n\nclass Broken:\n    def plan(self, view):\n        json.loads('{')\n",
    )
    status, _, err = told("run", "--policy", f"{path}:Broken", *SMALL)
    assert status == 1
    assert "decoder.py" in err
    assert f"step 0 at {path}, line 7: JSONDecodeError" in err.splitlines()[-1]


def test_compare_says_which_policy_broke_a_rule(told, tmp_path):
    path = failing(tmp_path, "class Broken:\n    def plan(self, view):\n        pass\n")
    status, out, err = told("compare", "--policy", "naive", "--policy", f"{path}:Broken", *SMALL)
    assert (status, out) == (1, "")
    assert err.startswith(f"servesim: policy {path}:Broken broke a rule in step 0, rule 'plan': ")


@pytest.mark.parametrize(
    ("body", "line", "error"),
    [
        ("x = 1 / 0\n", 3, "ZeroDivisionError"),
        ("class Broken:\n    def __init__(self):\n        self.x = {}[1]\n", 5, "KeyError"),
    ],
)
def test_an_exception_before_the_run_shows_the_student_s_line_too(
    told, tmp_path, body, line, error
):
    path = failing(tmp_path, body)
    status, out, err = told("run", "--policy", f"{path}:Broken", *SMALL)
    assert (status, out) == (1, "")
    shows_only(err, path, line)
    assert error in err.splitlines()[-1]


def test_a_broken_rule_is_one_sentence_with_step_request_and_rule(told, tmp_path):
    path = failing(
        tmp_path, "class Broken:\n    def plan(self, view):\n        return ss.Plan([(4, 1)])\n"
    )
    status, out, err = told("run", "--policy", f"{path}:Broken", *SMALL)
    assert (status, out) == (1, "")
    assert err == (
        "servesim: the policy broke a rule in step 0, request 4, rule 'known': "
        "no such request is waiting or running\n"
    )


@pytest.mark.parametrize("plan", ["ss.Plan()", "ss.Plan(wait=True)", "None", "ss.Plan(None)"])
def test_a_policy_that_does_nothing_is_stopped(told, tmp_path, plan):
    path = failing(tmp_path, f"class Broken:\n    def plan(self, view):\n        return {plan}\n")
    status, _, err = told("run", "--policy", f"{path}:Broken", *SMALL)
    assert status == 1
    assert len(err.splitlines()) == 1


def test_a_policy_that_breaks_its_own_rule_through_a_subprocess(tmp_path):
    path = failing(tmp_path, IN_A_HELPER)
    done = servesim("run", "--policy", f"{path}:Broken", *SMALL)
    assert done.returncode == 1
    shows_only(done.stderr, path, 7, 11)


# --- bad input: one sentence that says what is wrong

MANY = "9" * 400
RUN = ("run", "--policy", "naive")


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        # Commands and flags.
        ("", "COMMAND"),
        ("nosuch", "invalid choice: 'nosuch'"),
        ("run", "required: --policy"),
        ("compare", "required: --policy"),
        ("run --policy naive --bogus", "unrecognized arguments: --bogus"),
        ("run --policy naive --kv 5", "unrecognized arguments: --kv"),
        ("run --policy", "--policy: expected one argument"),
        ("toy --trace-out x", "unrecognized arguments"),
        ("run --policy naive --never-fits try", "invalid choice: 'try'"),
        # Numbers.
        ("toy -n 0", "number of requests must be a whole number from 1"),
        ("toy -n -1", "number of requests must be a whole number from 1"),
        ("toy -n 1.5", "-n: invalid int value: '1.5'"),
        ("toy -n 1e999", "-n: invalid int value: '1e999'"),
        ("toy -n nan", "-n: invalid int value: 'nan'"),
        (f"toy -n {MANY}", "number of requests must be"),
        ("toy --seed x", "--seed: invalid int value: 'x'"),
        ("slots --requests 0", "number of requests must be"),
        ("slots --slots 0", "slots must be a whole number, 1 or more, not 0"),
        ("slots --slots -3", "slots must be a whole number, 1 or more, not -3"),
        ("slots --step-ms 1e12", "the clock ends .* lower the prices"),
        ("slots --step-ms nan", "step_ms must be a number from 0"),
        ("slots --step-ms inf", "step_ms must be a number from 0"),
        ("slots --step-ms 1e999", "step_ms must be a number from 0"),
        ("slots --step-ms 1e300", "step_ms must be a number from 0"),
        ("slots --step-ms -1", "step_ms must be a number from 0"),
        ("slots --step-ms fast", "--step-ms: invalid float value: 'fast'"),
        ("slots --step-ms 0.0000001", "price step_ms=1e-07 is finer than 1 ns"),
        ("slots --prefill-us-per-tok 0.0001", "prefill_us_per_tok=0.0001 is finer than 1 ns"),
        ("run --policy naive --kv-blocks 0", "blocks must be a whole number, 1 or more"),
        ("run --policy naive --kv-blocks -5", "blocks must be a whole number, 1 or more"),
        ("run --policy naive --kv-blocks 1e3", "--kv-blocks: invalid int value"),
        ("run --policy naive --block-size 0", "block_size must be a whole number"),
        ("run --policy naive --block-size -1", "block_size must be a whole number"),
        # A request that can never fit.
        ("run --policy naive --kv-blocks 1", "request 0 can never run: it needs .*--never-fits"),
        ("compare --policy static --policy chunked --kv-blocks 3", "request 0 can never run"),
        # Policies.
        ("run --policy nosuch", "unknown policy 'nosuch'; known are naive, static"),
        ("compare --policy naive --policy nosuch", "unknown policy 'nosuch'"),
        ("run --policy vllm:watermark=x", "watermark must be a share from 0 to below 1, not 'x'"),
        ("run --policy vllm:watermark=none", "watermark must be a share .* not None"),
        ("run --policy vllm:max_num_seqs=none", "max_num_seqs must be a whole number"),
        ("run --policy static:batch_size=none", "batch_size must be a whole number"),
        ("run --policy orca:max_len=none", "max_len must be a whole number"),
        ("run --policy static:size=4", "unknown option 'size'; known are batch_size"),
        ("run --policy static:batch_size", "written key=value, not 'batch_size'"),
        ("run --policy static:batch_size=1,batch_size=2", "'batch_size' is given twice"),
        ("run --policy static:batch_size=0", "batch_size must be a whole number"),
        ("run --policy static:batch_size=many", "batch_size must be a whole number"),
        ("run --policy static:batch_size=1e999", "batch_size must be a whole number"),
        ("run --policy chunked:chunk=nan", "chunk must be a whole number"),
        ("run --policy continuous:prefill_alone=maybe", "'prefill_alone' must be true or false"),
        ("run --policy naive:self=1", "unknown option 'self'"),
        ("run --policy nosuch.py:A", "policy file nosuch.py does not exist"),
        ("run --policy nosuch.py", "name the class too"),
        # Workloads.
        ("run --policy naive --workload nosuch", "unknown workload 'nosuch'; known are toy"),
        ("run --policy naive --workload nosuch.csv", "nosuch.csv: No such file"),
        ("run --policy naive --workload w.txt", "unknown workload 'w.txt'"),
        ("run --policy naive --workload poisson:n=0", "number of requests must be"),
        ("run --policy naive --workload poisson:n=-4", "number of requests must be"),
        ("run --policy naive --workload poisson:n=1e3", "number of requests must be"),
        (
            "run --policy naive --workload poisson:size=3",
            "unknown option 'size'; known are n, rate",
        ),
        ("run --policy naive --workload poisson:rate=0", "rate must be a positive number"),
        ("run --policy naive --workload poisson:rate=1e999", "rate must be a positive number"),
        ("run --policy naive --workload poisson:rate=1e-300", "is the rate too small"),
        ("run --policy naive --workload poisson:rate=x", "rate must be a positive number"),
        ("run --policy naive --workload poisson:prompt=0", "prompt length 0 is not usable"),
        ("run --policy naive --workload poisson:prompt=-5", "prompt length -5 is not usable"),
        ("run --policy naive --workload poisson:prompt=nan", "prompt length nan is not usable"),
        ("run --policy naive --workload poisson:output=9-5", "a range is"),
        ("run --policy naive --workload poisson:output=azure", "output length 'azure'"),
        ("run --policy naive --workload poisson:prompt=1000000000", "prompt_len must be"),
        ("run --policy naive --workload poisson:seed=1.5", "seed must be a whole number"),
        ("run --policy naive --workload gamma:cv=0", "cv must be"),
        ("run --policy naive --workload gamma:cv=1e-200", "cv must be"),
        ("run --policy naive --workload gamma:cv=1e200", "cv must be"),
        # Prices.
        ("run --policy naive --cost nosuch", "unknown cost 'nosuch'; known are opt-13b-a100"),
        ("run --policy naive --cost toy:base_ms=1", "cost 'toy' takes no options"),
        ("run --policy naive --cost affine:base=1", "unknown option 'base'; known are base_ms"),
        ("run --policy naive --cost affine:_ns=1", "unknown option '_ns'"),
        ("run --policy naive --cost affine:base_ms=-1", "base_ms must be a number from 0"),
        ("run --policy naive --cost affine:base_ms=nan", "base_ms must be a number from 0"),
        ("run --policy naive --cost affine:base_ms=1e12", "the clock ends .* lower the prices"),
        ("run --policy naive --cost affine:base_ms=1e300", "base_ms must be a number from 0"),
        ("run --policy naive --cost affine:base_ms=none", "base_ms must be a number from 0"),
        ("run --policy naive --cost affine:prefill_us=0.0001", "is finer than 1 ns"),
        (
            "run --policy naive --cost affine:padding_priced_once=3",
            "'padding_priced_once' must be true or false",
        ),
        ("run --policy naive --cost roofline:gpu=abacus", "unknown gpu 'abacus'; known are h100"),
        ("run --policy naive --cost roofline:model=7", "unknown model 7"),
        ("run --policy naive --cost roofline:gpus=0", "gpus must be"),
        # Objectives.
        ("run --policy naive --slo=", "unknown SLO preset ''"),
        ("run --policy naive --slo nosuch", "unknown SLO preset 'nosuch'; known are llama-2-70b"),
        ("run --policy naive --slo ttft=3", "unknown option 'ttft'; known are ttft_ms"),
        ("run --policy naive --slo ttft_ms=0", "ttft_ms must be a positive number"),
        ("run --policy naive --slo ttft_ms=-2", "ttft_ms must be a positive number"),
        ("run --policy naive --slo ttft_ms=nan", "ttft_ms must be a positive number"),
        ("run --policy naive --slo ttft_ms=1e999", "ttft_ms must be a positive number"),
        ("run --policy naive --slo tpot_ms=soon", "tpot_ms must be a positive number"),
        ("run --policy naive --slo ttft_ms=5,tpot_ms", "written key=value"),
        # Where the trace goes.
        ("run --policy naive --trace-out no/such/folder/t.json", "--trace-out .*cannot be written"),
        ("run --policy naive --trace-out .", "--trace-out .: cannot be written"),
        ("run --policy naive --trace-out /dev/null", "--trace-out /dev/null: cannot be written"),
    ],
)
def test_bad_input_is_one_sentence(told, tmp_path, monkeypatch, argv, says):
    monkeypatch.chdir(tmp_path)
    is_one_sentence(told(*argv.split()), says)
    assert list(tmp_path.iterdir()) == []


def is_one_sentence(told, says):
    status, out, err = told
    assert (status, out) == (2, "")
    assert re.fullmatch(rf"servesim: .*{says}.*\n", err)
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("w.csv", b"", "w.csv, line 1: the header must name the columns"),
        ("w.csv", b"arrival_s,prompt_len,output_len\n", "w.csv: the workload is empty"),
        ("w.csv", b"arrival_s,prompt_len,output_len\n1,2\n", "w.csv, line 2: 2 cells"),
        ("w.csv", b"arrival_s,prompt_len,output_len\n2,1,1\n1,1,1\n", "w.csv, line 3: it arrives"),
        ("w.csv", b"arrival_s,prompt_len,output_len\n1,-1,1\n", "w.csv, line 2: prompt_len must"),
        ("w.csv", b"arrival_s,prompt_len,output_len\nnan,1,1\n", "w.csv, line 2: arrival 'nan'"),
        ("w.csv", b"arrival_s,prompt_len,output_len\n1,1,\xff\n", "w.csv, .*: not UTF-8 text"),
        ("w.csv", b"arrival_s,prompt_len,output_len\n1e11,1,1\n", "w.csv, line 2: arrival '1e11'"),
        ("w.csv", b"arrival_s,prompt_len,output_len\n0,1," + b"9" * 5000, "w.csv, line 2: output_"),
        (
            "w.csv",
            b"arrival_s,prompt_len,output_len,priority\n0,1,1,99999999999999999999\n",
            "w.csv, line 2: priority must be a whole number of at most 64 bits",
        ),
        (
            "w.csv",
            b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.-8,1,1\n",
            "w.csv, line 2: timestamp",
        ),
        ("w.jsonl", b"{}\n{\n", "w.jsonl, line 1: 'timestamp' is missing"),
        ("w.jsonl", b"oops\n", "w.jsonl, line 1: Expecting value"),
        ("w.csv.gz", gzip.compress(b"x" * 999, mtime=0)[:-9], "w.csv.gz, .*Compressed file ended"),
        ("w.csv.gz", b"plain", "w.csv.gz, .*Not a gzipped file"),
    ],
)
def test_a_faulty_workload_file_is_one_sentence(told, tmp_path, name, data, says):
    (tmp_path / name).write_bytes(data)
    is_one_sentence(told(*RUN, "--workload", tmp_path / name), says)


def test_a_folder_is_no_workload(told, tmp_path):
    (tmp_path / "w.csv").mkdir()
    is_one_sentence(told(*RUN, "--workload", tmp_path / "w.csv"), "w.csv: Is a directory")


@pytest.mark.parametrize(
    ("name", "data", "policy", "says"),
    [
        ("p.py", b"class A:\n    def plan(self view): pass\n", "A", "p.py, line 2: "),
        ("p.py", b"x = '\xff'\n", "A", "p.py.*utf-8"),
        ("p.py", b"a\0b\n", "A", "p.py.*null bytes"),
        ("p.py", b"class B:\n    pass\n", "A", "p.py has no class 'A'; it has B"),
        ("p.py", b"", "A", "p.py has no class 'A'; it has none"),
        ("p.py", b"def A(): pass\n", "A", "p.py has no class 'A'"),
        ("p.py", b"class A:\n    pass\n", "A", "needs a method plan"),
        ("p.py", b"class A:\n    def plan(self, view): pass\n", "A:x=1", "unknown option 'x'"),
        ("p.py", b"class A:\n    def __init__(self, x): pass\n", "A", "option 'x' is missing"),
        ("p.py", b"class A:\n    pass\n", "", "p.py has no class ''"),
        ("p.txt", b"class A:\n    pass\n", "A", "written key=value, not 'A'"),
    ],
)
def test_a_faulty_policy_file_is_one_sentence(told, tmp_path, name, data, policy, says):
    (tmp_path / name).write_bytes(data)
    is_one_sentence(told("run", "--policy", f"{tmp_path / name}:{policy}", *SMALL), says)


# --- the trace file


def test_a_trace_is_written_whole(told, tmp_path):
    path = tmp_path / "t.json"
    path.write_text("an older trace", encoding="utf-8")
    status, out, _ = told(*RUN, *SMALL, "--trace-out", path)
    assert (status, out != "") == (0, True)
    trace = json.loads(path.read_text(encoding="utf-8"))
    result = ss.simulate(
        ss.workload.poisson(5, prompt=20, output=3), ss.policies.Naive(), record_steps=True
    )
    assert trace == json.loads(json.dumps(ss.trace.chrome_trace(result)))
    assert list(tmp_path.iterdir()) == [path]


def test_a_trace_that_cannot_be_written_leaves_the_old_one(told, tmp_path, monkeypatch):
    path = tmp_path / "t.json"
    path.write_text("an older trace", encoding="utf-8")

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    is_one_sentence(told(*RUN, *SMALL, "--trace-out", path), "t.json: No space left on device")
    assert path.read_text(encoding="utf-8") == "an older trace"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failing_run_leaves_no_trace(told, tmp_path):
    path = tmp_path / "t.json"
    told(*RUN, "--kv-blocks", "1", "--trace-out", path)
    assert list(tmp_path.iterdir()) == []


# --- the terminal

COMMANDS = ("toy", "slots", "run", "compare")


def test_the_module_is_a_command(tmp_path):
    done = servesim("toy", "-n", "3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) == 5
    done = servesim("toy", "-n", "0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_help_shows_examples_that_run(told, capsys, command):
    with pytest.raises(SystemExit) as left:
        main([*command, "--help"])
    assert left.value.code == 0
    shown = capsys.readouterr().out
    examples = [
        line.split()[1:]
        for line in shown.partition("example")[2].splitlines()
        if line.strip().startswith("servesim ") and not re.search(r"\.(py|csv|json)", line)
    ]
    for argv in examples:
        assert told(*argv)[0] == 0
    assert examples or command in (["run"], ["replay"])


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"servesim {ss.__version__}\n"


posix = pytest.mark.skipif(os.name != "posix", reason="this needs a POSIX system")


@posix
def test_a_closed_pipe_is_no_error():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "servesim", "slots", "--json"],
            stdout=closed,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this needs /dev/full")
def test_a_full_disk_is_one_sentence():
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "servesim", "toy", "-n", "2"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
    assert done.returncode == 2
    assert re.fullmatch("servesim: the output cannot be written: .*\n", done.stderr)


def test_a_terminal_without_the_signs_gets_escapes(tmp_path):
    path = tmp_path / "p.py"
    path.write_text(
        "from servesim.policies import Naive\n\nclass A(Naive):\n"
        "    def __repr__(self):\n        return 'Pl\\xe4n'\n",
        encoding="utf-8",
    )
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = servesim("run", "--policy", f"{path}:A", *SMALL, env=ascii_only)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("policy         Pl\\xe4n\n")


@posix
def test_ctrl_c_ends_a_run_with_status_130(tmp_path):
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\n\nclass Slow:\n    def plan(self, view):\n"
        "        print('planning', flush=True)\n        time.sleep(60)\n",
        encoding="utf-8",
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "servesim", "run", "--policy", f"{slow}:Slow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job may ignore it
    )
    with process:
        assert process.stdout.readline() == "planning\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert re.fullmatch(rf"servesim: interrupted in step 0 at {slow}, line [56]\n", err)


def test_no_bar_is_drawn_where_there_is_no_terminal(told):
    status, _, err = told(*RUN, "--workload", "poisson:n=2500,prompt=2,output=1")
    assert (status, err) == (0, "")


def test_a_bar_is_drawn_on_a_terminal(told, monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    status, _, err = told(*RUN, "--workload", "poisson:n=2500,prompt=2,output=1")
    assert status == 0
    assert "2500" in err
