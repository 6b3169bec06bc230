"""Sweeps: the same rows on every run, whoever computes them and whoever is killed meanwhile."""

import ast
import csv
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import pytest

import servesim as ss
from servesim import spec
from servesim.cli import main
from servesim.errors import InputError
from servesim.sweep import COLUMNS, SHOWING, TRIES, Point, _run, grid, simulator_sources, sweep

SMALL = "poisson:n={8,12},prompt=50-90,output=3,rate=9"
GRID = {
    "policies": ["static:batch_size=4", "chunked:token_budget={64,512}"],
    "workloads": [SMALL, "toy:n=3"],
    "costs": ["toy", "opt-13b-a100"],
    "kv_blocks": [None, 600],
    "slos": "llama-3.1-8b",
}
POLICIES = """\
import os
import pathlib
import signal
import time

from servesim.policies import Continuous


class Slow(Continuous):
    def __init__(self, ms=20):
        super().__init__()
        self.ms = ms

    def plan(self, view):
        time.sleep(self.ms / 1000)
        return super().plan(view)


class Broken(Continuous):
    def plan(self, view):
        raise ZeroDivisionError(f"in step {view.step}")


class Deadly(Continuous):
    \"\"\"Kills its process so many times.\"\"\"

    def __init__(self, times=1, folder=""):
        super().__init__()
        self.times, self.folder = times, folder

    def plan(self, view):
        deaths = len(os.listdir(self.folder))
        if deaths < self.times:
            (pathlib.Path(self.folder) / str(deaths)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().plan(view)
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(POLICIES, encoding="utf-8")
    return path


@pytest.fixture
def out(tmp_path):
    return tmp_path / "rows.csv"


@pytest.fixture
def told(capsys):
    def told(*argv):
        status = main(["sweep", *map(str, argv)])
        return status, *capsys.readouterr()

    return told


def notes(out):
    return out.with_name(out.name + ".points.jsonl")


def kept(out):
    """Return the lines that are there so far."""
    return notes(out).read_bytes().splitlines(keepends=True) if notes(out).exists() else []


def wait_for(condition):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.01)
    pytest.fail("waited for nothing")


@pytest.fixture
def threads():
    with ThreadPoolExecutor(3) as executor:
        yield executor


# --- the rows


def test_a_row_holds_what_simulate_gives(threads):
    workload = "gamma:n=30,rate=3,cv=3,seed=4,prompt=200,output=20-90"
    (row,) = sweep(
        "vllm:max_num_seqs=8",
        workload,
        "toy",
        kv_blocks=60,
        slos="ttft_ms=900,tpot_ms=60",
        executor=threads,
    )
    result = ss.simulate(
        ss.workload.gamma(30, 3, 3, 200, "20-90", seed=4),
        ss.policies.VLLM(max_num_seqs=8),
        cost=ss.cost.PRESETS["toy"],
        kv=ss.KVCache(60),
    )
    slo = ss.SLO(900, 60)
    assert tuple(row) == COLUMNS
    assert (row["policy"], row["workload"], row["cost"]) == ("vllm:max_num_seqs=8", workload, "toy")
    assert (row["kv_blocks"], row["error"]) == (60, None)
    assert (row["requests"], row["finished"], row["rejected"]) == (30, 30, 0)
    assert row["makespan_s"] == result.makespan_s
    assert row["throughput_tok_s"] == result.throughput_tok_s
    for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
        for level, figure in getattr(result, name).row().items():
            assert row[f"{name}_{level}"] == figure
    assert row["goodput_req_s"] == result.goodput_req_s(slo)
    assert row["attainment"] == result.attainment(slo)
    for name in ("preemptions", "steps", "engine_iterations", "peak_blocks", "mean_blocks"):
        assert row[name] == getattr(result, name) > 0
    assert row["mean_running"] == result.mean_running


def test_rows_come_in_the_order_of_the_grid(threads, file, out):
    rows = sweep([f"{file}:Slow", "naive"], ["toy:n=2", "toy:n=1"], out=out, executor=threads)
    order = [(row["policy"], row["workload"]) for row in rows]
    assert order == [(p, w) for p in (f"{file}:Slow", "naive") for w in ("toy:n=2", "toy:n=1")]
    finished = [json.loads(line)["row"]["policy"] for line in kept(out)]
    assert finished[0] == "naive", "it waits for nobody"


def test_the_bytes_are_the_same_whoever_runs_it(threads, tmp_path):
    for name, how in (
        ("threads.csv", {"executor": threads}),
        ("one.csv", {"jobs": 1}),
        ("two.csv", {"jobs": 2}),
    ):
        assert len(sweep(**GRID, out=tmp_path / name, **how)) == 3 * 3 * 2 * 2
    once, *others = (tmp_path / name for name in ("threads.csv", "one.csv", "two.csv"))
    assert {path.read_bytes() for path in others} == {once.read_bytes()}


def test_files_hold_the_rows(threads, tmp_path, told):
    rows = sweep(**GRID, out=tmp_path / "rows.jsonl", executor=threads)
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == rows
    sweep(**GRID, out=tmp_path / "rows.csv", executor=threads)
    with (tmp_path / "rows.csv").open(newline="") as opened:
        read = list(csv.DictReader(opened))
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]
    assert {path.name for path in tmp_path.iterdir()} == {
        *("rows.csv", "rows.csv.points.jsonl", "rows.jsonl", "rows.jsonl.points.jsonl")
    }


def test_the_command_line_prints_what_the_function_gives(told, threads):
    status, printed, err = told(
        *("--policy", "static:batch_size=4", "chunked", "--policy", "naive", "--workload", SMALL),
        *("--cost", "toy", "slots", "--kv-blocks", "none", "99", "--slo", "tpot_ms={20,30}"),
        *("--block-size", "8", "--never-fits", "reject", "--jobs", "1"),
    )
    rows = sweep(
        ["static:batch_size=4", "chunked", "naive"],
        SMALL,
        ["toy", "slots"],
        kv_blocks=[None, 99],
        slos=["tpot_ms=20", "tpot_ms=30"],
        block_size=8,
        never_fits="reject",
        executor=threads,
    )
    assert (status, err) == (0, "")
    read = list(csv.DictReader(printed.splitlines()))
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in rows]


def test_braces_make_a_grid():
    assert spec.expand("naive") == ["naive"]
    assert spec.expand("a:x={1,2},y={3-4,5|6}") == [
        *("a:x=1,y=3-4", "a:x=1,y=5|6", "a:x=2,y=3-4", "a:x=2,y=5|6")
    ]
    points = grid("naive", ["toy:n={1,2}", "toy:n=2"], "toy", None, None, 16, "error")
    assert [point.workload for point in points] == ["toy:n=1", "toy:n=2"], "each once"
    for wrong in ("a={1,2", "a=1}", "a={{1,2}}"):
        with pytest.raises(InputError, match="braces hold choices"):
            spec.expand(wrong)


# --- what goes wrong


@pytest.mark.parametrize(
    ("argv", "names"),
    [
        (["--policy", "naiv"], "unknown policy 'naiv'"),
        (["--policy", "naive", "nowhere.py:Mine"], "nowhere.py does not exist"),
        (["--workload", "tou"], "unknown workload 'tou'"),
        (["--workload", "poisson:rate={1,-1}"], "rate must be a positive number"),
        (["--workload", "nowhere.csv"], "nowhere.csv"),
        (["--workload", "toy:n={1"], "braces hold choices"),
        (["--cost", "free"], "unknown cost 'free'"),
        (["--slo", "soon"], "unknown SLO preset 'soon'"),
        (["--kv-blocks", "0"], "blocks must be a whole number"),
        (["--kv-blocks", "few"], "blocks must be a whole number"),
        (["--block-size", "0"], "block_size must be a whole number"),
        (["--never-fits", "try"], "--never-fits"),
        (["--jobs", "0"], "jobs must be a whole number, 1 or more"),
        (["--jobs", "1", "--dask", "x"], "not allowed with argument --jobs"),
        (["--resume"], "need --out FILE"),
        (["--fresh"], "need --out FILE"),
        (["--out", "rows.txt"], "ends in .csv or .jsonl"),
        (["--out", "no/such/rows.csv"], "cannot be written"),
    ],
)
def test_bad_input_is_one_sentence_before_anything_runs(
    told, tmp_path, monkeypatch, argv, names, file
):
    monkeypatch.chdir(tmp_path)
    status, printed, err = told(
        *("--policy", f"{file}:Broken", "--workload", "toy:n=2", *argv),
        *([] if {"--out", "--resume", "--fresh"} & {*argv} else ["--out", "rows.csv"]),
    )
    assert (status, printed) == (2, "")
    assert names in err
    assert len(err.splitlines()) == 1
    assert [path.name for path in tmp_path.iterdir()] in (["mine.py"], ["mine.py", "__pycache__"])


def test_an_empty_grid_is_refused():
    with pytest.raises(InputError, match="the grid is empty"):
        sweep([], "toy")
    with pytest.raises(InputError, match="unknown never_fits 'perhaps'"):
        sweep("naive", "toy", never_fits="perhaps")


def test_a_policy_that_cannot_be_loaded_stops_the_sweep_before_it_starts(told, file):
    file.write_text("1 / 0\n")
    status, printed, err = told("--policy", f"{file}:Mine", "--workload", "toy")
    assert (status, printed) == (1, "")
    assert "failed to load" in err


def test_a_point_that_fails_is_a_row(told, file, out):
    argv = ("--policy", f"{file}:Broken", "continuous", "--workload", "toy:n=9", "--out", out)
    status, printed, err = told(*argv, "--kv-blocks", "20", "2000", "--jobs", "1")
    assert (status, printed) == (0, f"{out}: 4 rows\n")
    assert err == "servesim: 3 of 4 runs failed; the column `error` says why\n"
    with out.open(newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert ["can never run" in row["error"] for row in rows] == [True, False, True, False]
    assert "Broken.plan failed in step 0" in rows[1]["error"]
    assert "mine.py, line 21: ZeroDivisionError: in step 0" in rows[1]["error"]
    assert [row["finished"] for row in rows] == ["", "", "", "9"]
    assert len(kept(out)) == 4


def test_a_worker_with_another_version_is_refused(file):
    point = Point("naive", "toy:n=1", "toy", None, None, 16, "error")
    with pytest.raises(InputError, match="has another version of servesim"):
        _run(point, "another digest", 0)


def test_an_executor_that_is_shut_down_is_told():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    with pytest.raises(InputError, match="the executor takes no more work"):
        sweep("naive", "toy:n=1", executor=executor)


# --- going on where it was stopped


def test_finished_points_are_not_run_again(out, threads):
    sweep("naive", ["toy:n=1", "toy:n=2"], out=out, executor=threads)
    whole, lines = out.read_bytes(), kept(out)
    out.unlink()
    nobody = ThreadPoolExecutor(1)
    nobody.shutdown()
    sweep("naive", ["toy:n=1", "toy:n=2"], out=out, executor=nobody)
    assert (out.read_bytes(), kept(out)) == (whole, lines)
    sweep(["naive", "static"], ["toy:n=1", "toy:n=2"], out=out, executor=threads)
    assert kept(out)[:2] == lines, "a grid may grow"
    assert len(kept(out)) == 4


@pytest.mark.parametrize("cut", [1, 40, 300])
def test_a_half_written_line_is_dropped(out, threads, cut):
    sweep(**GRID, out=out, executor=threads)
    whole, lines = out.read_bytes(), kept(out)
    notes(out).write_bytes(b"".join([*lines[:5], lines[5][:-cut]]))
    sweep(**GRID, out=out, executor=threads)
    assert out.read_bytes() == whole
    assert sorted(kept(out)) == sorted(lines)


def test_the_points_of_another_grid_are_refused(out, threads, told):
    sweep("naive", "toy:n={1,2}", out=out, executor=threads)
    before = out.read_bytes(), kept(out)
    for other in (
        ("--policy", "naive", "--workload", "toy:n=1"),
        ("--policy", "naive", "--workload", "toy:n={1,2}", "--kv-blocks", "5000"),
    ):
        status, _, err = told(*other, "--out", out)
        assert status == 2
        assert "rows.csv.points.jsonl, line" in err
        assert "not a point of this grid; name another output, or forget" in err
        assert (out.read_bytes(), kept(out)) == before
    status, _, _ = told("--policy", "naive", "--workload", "toy:n=1", "--out", out, "--fresh")
    assert (status, len(kept(out))) == (0, 1)


@pytest.mark.parametrize("line", ["", "[]", "{}", '{"row": {}}', "not JSON"])
def test_a_file_of_something_else_is_refused(out, line):
    notes(out).write_text(line + "\n")
    with pytest.raises(InputError, match="line 1: not a point of this grid"):
        sweep("naive", "toy:n=1", out=out)
    assert notes(out).read_text() == line + "\n"


def test_rows_depend_on_the_simulator_and_not_on_how_it_is_shown():
    """A figure redrawn makes no row out of date, and no module of a run can import one."""
    home = Path(ss.__file__).parent
    sources = {p.relative_to(home).as_posix(): p for p in simulator_sources()}
    assert {"engine.py", "policies/vllm.py", "cost.py", "grade/judge.py"} <= sources.keys()
    assert SHOWING.isdisjoint(name.partition("/")[0].removesuffix(".py") for name in sources)
    assert all((home / name).is_dir() or (home / f"{name}.py").is_file() for name in SHOWING)
    for name, path in sources.items():
        if name.startswith("grade/") or name in ("__init__.py", "__main__.py"):
            continue  # its pages are drawn; the package offers everything
        imported = {
            part
            for node in ast.walk(ast.parse(path.read_bytes()))
            if isinstance(node, ast.ImportFrom) and node.level == len(name.split("/"))
            for part in (
                [node.module.split(".")[0]] if node.module else [n.name for n in node.names]
            )
        }
        # The sweep writes its files by `output`, a comparison shows itself by `table`.
        assert imported & SHOWING <= {"output", "table"}, name


def test_what_a_changed_file_gave_is_run_again(out, file, threads):
    policies = ["naive", f"{file}:Slow:ms=1"]
    first = sweep(policies, "toy:n=2", "toy", out=out, executor=threads)
    file.write_text(POLICIES.replace("return super().plan(view)", "return super().plan(view)\n", 1))
    assert sweep(policies, "toy:n=2", "toy", out=out, executor=threads) == first
    assert len(kept(out)) == 3


def command(file, out, *argv):
    return [
        *(sys.executable, "-m", "servesim", "sweep", "--policy", f"{file}:Slow", "naive"),
        *("--workload", "poisson:n=4,rate={1,2,3,4,5},output=2", "--jobs", "2"),
        *("--out", str(out), *argv),
    ]


def alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_sweep_goes_on_to_the_same_bytes(file, out, tmp_path):
    process = subprocess.Popen(command(file, out), start_new_session=True)
    wait_for(lambda: len(kept(out)) >= 3)
    process.kill()
    process.wait()
    lines = kept(out)
    assert 3 <= len(lines) < 10
    assert not out.exists()
    wait_for(lambda: not alive(process.pid))  # its workers end too
    notes(out).write_bytes(b"".join(lines) + lines[0][:30])

    assert subprocess.run(command(file, out, "--resume"), timeout=60).returncode == 0
    other = tmp_path / "uninterrupted.csv"
    assert subprocess.run(command(file, other), timeout=60).returncode == 0
    assert out.read_bytes() == other.read_bytes()
    assert kept(out)[: len(lines)] == lines
    assert len(kept(out)) == 10, "each point was run once"


@pytest.mark.parametrize("after", [0, 2])
def test_ctrl_c_ends_everything_and_keeps_what_is_finished(file, out, after):
    process = subprocess.Popen(
        command(file, out),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a job may ignore it
    )
    wait_for(lambda: notes(out).exists() and len(kept(out)) >= after)
    os.killpg(process.pid, signal.SIGINT)
    said = process.communicate(timeout=30)
    assert (process.returncode, said) == (130, ("", "servesim: interrupted\n"))
    assert after <= len(kept(out)) < 10
    assert not out.exists()
    wait_for(lambda: not alive(process.pid))


# --- workers that die


def test_a_point_whose_process_dies_is_run_again(file, out, tmp_path):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    policies = [f"{file}:Deadly:folder={deaths},times=2", f"{file}:Slow", "naive"]
    rows = sweep(policies, "toy:n={1,2}", "toy", out=out, jobs=2)
    assert len(os.listdir(deaths)) >= 2
    assert [row["error"] for row in rows] == [None] * 6
    assert len(kept(out)) == 6


def test_a_point_that_always_kills_its_process_takes_nobody_along(file, out, tmp_path):
    deaths = tmp_path / "deaths"
    deaths.mkdir()
    policies = [f"{file}:Deadly:folder={deaths},times=99", f"{file}:Slow:ms=5", "naive"]
    rows = sweep(policies, "toy:n=1", "toy", out=out, jobs=2)
    assert len(os.listdir(deaths)) == TRIES
    assert rows[0]["error"].startswith(f"its worker was lost {TRIES} times")
    assert [row["error"] for row in rows[1:]] == [None, None]
    assert len(kept(out)) == 2, "another try may go better"


def test_an_executor_that_loses_work_is_asked_again(threads):
    class Forgetful(Executor):
        asked = 0

        def submit(self, fn, /, *args):
            self.asked += 1
            if self.asked % 2 or self.asked > 40:
                return threads.submit(fn, *args)
            return threads.submit(lambda: 1 / 0)

    executor = Forgetful()
    assert sweep(**GRID, executor=executor) == sweep(**GRID, executor=threads)
    assert executor.asked == 36 + 20


def test_workers_that_all_die_end_the_sweep(threads):
    class Empty(Executor):
        def submit(self, fn, /, *args):
            return threads.submit(__import__, "servesim_is_not_there")

    with pytest.raises(InputError, match="no worker can run anything: ModuleNotFoundError"):
        sweep("naive", "toy:n=1,seed={0,1,2,3,4}", executor=Empty(), jobs=1)


# --- a cluster


@pytest.fixture
def cluster():
    dask = pytest.importorskip("dask", reason="the extra `cluster` brings Dask")
    distributed = pytest.importorskip("distributed", reason="the extra `cluster` brings Dask")
    quiet = {"distributed.scheduler.allowed-failures": 0, "distributed.logging.distributed": 50}
    with (
        dask.config.set(quiet),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as local,
        distributed.Client(local) as client,
    ):
        yield client


def test_a_dask_cluster_loses_a_worker_and_no_point(cluster, file, out, told, threads):
    policies, workload = [f"{file}:Slow", "naive"], "poisson:n=4,rate={1,2,3,4,5},output=2"
    pids = list(cluster.run(os.getpid).values())
    assert len({*pids, os.getpid()}) == 3

    def kill():
        wait_for(lambda: len(kept(out)) >= 2)
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    rows = sweep(policies, workload, out=out, executor=cluster.get_executor())
    killer.join()
    assert pids[0] not in cluster.run(os.getpid).values()
    assert [row["error"] for row in rows] == [None] * 10
    assert len(kept(out)) == 10
    assert rows == sweep(policies, workload, executor=threads)

    address = cluster.scheduler.address
    argv = ("--policy", *policies, "--workload", workload, "--dask", address)
    status, _, err = told(*argv, "--out", out.with_suffix(".2.csv"))
    assert (status, err) == (0, "")
    assert out.with_suffix(".2.csv").read_bytes() == out.read_bytes()


def test_dask_is_asked_for_in_one_sentence(told, monkeypatch):
    argv = ("--policy", "naive", "--workload", "toy", "--dask", "tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    status, _, err = told(*argv)
    assert (status, err) == (2, "servesim: --dask needs Dask: pip install -e '.[cluster]'\n")


def test_an_address_that_is_none_is_told_at_once_and_leaves_nothing_to_close():
    pytest.importorskip("distributed")
    argv = ["--policy", "naive", "--workload", "toy:n=1", "--dask", "nosuch"]
    done = subprocess.run(
        [sys.executable, "-m", "servesim", "sweep", *argv], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1  # and no traceback of a client that cannot close


# --- the bar


def test_a_bar_is_drawn_on_a_terminal_only(told, monkeypatch, out):
    pytest.importorskip("tqdm")
    argv = ("--policy", "naive", "--workload", "toy:n={1,2}", "--jobs", "1", "--out", out)
    assert told(*argv)[2] == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert "2/2" in told(*argv)[2]
