"""The child process: what it can do, what it cannot, and what is left of it."""

import os
import subprocess
import time
from pathlib import Path

import pytest

import servesim as ss
from servesim.grade import Assignment, Case, Invariant, find, isolation, process
from servesim.grade.folder import Task, grade_file
from servesim.grade.judge import Judge, maker, run
from servesim.grade.process import TOKEN, Child, Limits, sweep_up
from servesim.grade.source import Refused
from tests.grading import HOSTILE, INSTRUCTOR, RIGHT, doing

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading needs a POSIX system")

WAYS = [*isolation.candidates(), isolation.NONE]
SHORT = Limits(plan_s=2.0, load_s=6.0)


def tried(way):
    if way is not isolation.NONE and not isolation.works(way):
        pytest.skip(f"{way.name} does not work on this machine")
    return way


def named(way):
    return f"{way.name}-{WAYS.index(way)}"


def scored(text, name="policy.py", way=None, limits=SHORT, assignment="warmup"):
    judge = Judge(find(assignment))
    with Child(text, name, "Policy", way or isolation.best(), limits) as child:
        return judge.score(child.build, text), child


# --- the same marks, here and there


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_a_right_policy_scores_full_however_it_is_kept_apart(way):
    score, child = scored(RIGHT, way=tried(way), limits=Limits())
    assert (score.points, score.refused) == (100, "")
    assert child.calls > 50


PREEMPTS = """\
from servesim import Plan


class Policy:
    def plan(self, view):
        plan, free, stay = Plan(), view.free_blocks, list(view.running)
        plan.reasons = {r.id: f"r{r.id} waits" for r in view.waiting[:1]}
        while stay and sum(view.blocks_needed(r, r.missing) for r in stay) > free:
            last = stay.pop()
            free += last.blocks
            plan.preempted.append(last.id)
        for r in stay if plan.preempted else [*stay, *view.waiting]:
            need = view.blocks_needed(r, r.missing)
            if need > free:
                break
            free -= need
            plan.scheduled.append((r.id, r.missing))
        return plan
"""


def tight():
    requests = ss.workload.poisson(n=12, rate=40, prompt="20|60", output="10-40", seed=4)
    return Case("tight", tuple(requests), kv=ss.KVCache(12, 8))


def test_a_run_is_the_same_in_both_processes():
    here = run(tight(), maker(PREEMPTS, "policy.py", "Policy"))
    with Child(PREEMPTS, "policy.py", "Policy", isolation.best(), Limits()) as child:
        there = run(tight(), child.build)
    assert here.stopped is there.stopped is None
    assert here.result.preemptions > 3
    assert here.steps == there.steps
    assert list(here.result.records) == list(there.result.records)


@pytest.mark.parametrize(
    "body",
    [
        "return [1, 2]",
        "return None",
        "return Plan([(99, 1)])",
        "return Plan([('0', 1)])",
        "return Plan([(0, 10**30)])",
        "return Plan([0])",
        "return Plan(reasons={'x': 'y'})",
        "return Plan(reasons={0: 3})",
        "return Plan(wait=1)",
        "return Plan(queue=[0, 0])",
        "return Plan(scheduled=3)",
        "view.waiting.clear()",
        "view.clock_ns = 0; view.step = 9",
        "view.running.append(1)",
        "view.waiting[0].produced = 5",
        "return view.waiting[99]",
    ],
)
def test_a_mistake_is_told_alike_in_both_processes(body):
    case, text = find("warmup").cases[0], doing(body)
    here = run(case, maker(text, "policy.py", "Policy")).stopped
    with Child(text, "policy.py", "Policy", isolation.best(), Limits()) as child:
        there = run(case, child.build).stopped
    assert here is not None
    assert there is not None
    assert (here.kind, here.step, here.request) == (there.kind, there.step, there.request)
    assert here.detail.replace(os.getcwd() + os.sep, "") == there.detail


def test_state_is_kept_in_a_case_and_forgotten_after_it():
    from tests.test_grade_check import KEEPS_COUNT

    score, _ = scored(KEEPS_COUNT, limits=Limits())
    assert score.full


def test_chance_is_the_same_each_time():
    sometimes = "import random\nif random.random() < 0.3:"
    text = doing(f"{sometimes} return Plan([(r.id, 1) for r in view.running])")
    first, second = (scored(text, limits=Limits())[0] for _ in range(2))
    assert [m.note for m in first.marks] == [m.note for m in second.marks]


# --- the hostile set


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_work_scores_nothing_and_the_reason_is_its_own(name, tmp_path):
    text, reason = HOSTILE[name]
    path = tmp_path / f"{name}.py"
    path.write_text(text)
    graded = grade_file(str(path), Task("warmup", unsafe=True, limits=SHORT))
    assert sum(graded.points.values()) == 0
    assert reason in graded.reason
    assert graded.slow == name.startswith("loops")


def test_the_true_lengths_are_nowhere_in_the_child():
    """Everything the child ever gets is in what the parent writes: 4321 must not be."""
    seen = []

    class Listening(Child):
        def _exchange(self, data, seconds, doing):
            seen.append(bytes(self._first) + data)
            return super()._exchange(data, seconds, doing)

    case = Case(
        "one",
        (ss.Request(0, 0, 1234, 4321), ss.Request(1, 0, 1234, 4321)),
        {"slots": 2},
        max_steps=30,
    )
    with Listening(RIGHT, "policy.py", "Policy", isolation.best(), Limits()) as child:
        run(case, child.build)
    assert len(seen) == 31
    assert b"1234" in b"".join(seen)
    assert b"4321" not in b"".join(seen)


def test_all_answers_together_are_bounded():
    served = "[(r.id, r.missing) for r in view.running or view.waiting[:1]]"
    text = doing(f"return Plan({served}, reasons={{0: 'x' * 900}})")
    case = Case("long", (ss.Request(0, 0, 1, 2000),), {"slots": 1})
    with (
        Child(text, "policy.py", "Policy", isolation.best(), Limits(answer=2000)) as child,
        pytest.raises(Refused, match="an answer of more than 2000 bytes"),
    ):
        run(case, child.build)


def test_all_plans_together_have_so_much_time():
    text = doing("import time; time.sleep(0.2)")
    score, child = scored(text, limits=Limits(total_s=1.0))
    assert "took more than" in score.refused
    assert child.slow


# --- nothing is left running


def descendants(token):
    wanted, found = f"{TOKEN}={token}".encode(), []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def soon(holds):
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if holds():  # asked once: what was seen may be gone the next time
            return True
        time.sleep(0.02)
    return False


LEAVES_SOMETHING = """\
import os, time
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        time.sleep(1000)
print("here", flush=True)
time.sleep(1000)
"""


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("way", WAYS, ids=named)
def test_what_hides_in_another_session_is_killed_too(way):
    token = f"test-{os.getpid()}-{time.monotonic_ns()}"
    argv = tried(way).command([isolation.PYTHON, *isolation.FLAGS, "-c", LEAVES_SOMETHING])
    started = subprocess.Popen(
        argv,
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**isolation.ENVIRONMENT, TOKEN: token},
    )
    try:
        assert started.stdout is not None
        assert started.stdout.readline() == b"here\n"
        assert soon(lambda: len(descendants(token)) >= 4)
        sweep_up(token)
        assert soon(lambda: not descendants(token))
    finally:
        sweep_up(token)
        started.kill()
        started.stdout.close()  # who is left may hold its other end: its end is not waited for
        started.wait()


def test_the_limits_are_set_before_the_policy_runs():
    names = ("AS", "CPU", "FSIZE", "NPROC", "CORE")
    asked = ", ".join(f"resource.getrlimit(resource.RLIMIT_{name})" for name in names)
    score, _ = scored(doing(f"import resource\nraise RuntimeError(({asked}))"), limits=Limits())
    pairs = ((512 * 2**20,) * 2, (121, 121), (0, 0), (0, 0), (0, 0))
    assert str(pairs) in str(score.marks[0].failure)


def test_whoever_ends_a_child_looks_for_what_it_left(monkeypatch):
    looked = []
    monkeypatch.setattr(process, "sweep_up", looked.append)
    with Child(RIGHT, "policy.py", "Policy", isolation.best(), Limits()) as child:
        child.build(find("warmup").cases[0])
    assert looked == [child._token]


def test_a_child_that_is_done_with_is_gone():
    with Child(RIGHT, "policy.py", "Policy", isolation.best(), Limits()) as child:
        child.build(find("warmup").cases[0])
        token = child._token
    assert descendants(token) == []
    assert child._process.returncode is not None


# --- walls, without the watchman: plain Python in each kind of isolation


def sealed(way, code, *more):
    if not tried(way).sealed:
        pytest.skip(f"{way.name} seals nothing")
    limited = f"import resource\nresource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n{code}"
    return subprocess.run(
        way.command([isolation.PYTHON, *isolation.FLAGS, "-c", limited, *map(str, more)]),
        capture_output=True,
        text=True,
        timeout=60,
        cwd="/",
        env=isolation.ENVIRONMENT,
        stdin=subprocess.DEVNULL,
    )


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_sealed_there_is_no_network(way):
    code = (
        "import socket\n"
        "print(socket.if_nameindex())\n"
        "try: socket.create_connection(('192.0.2.1', 80), 2)\n"
        "except OSError as error: print('no network', error.errno)\n"
    )
    told = sealed(way, code)
    assert "no network" in told.stdout
    assert "eth" not in told.stdout


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_sealed_hidden_tests_cannot_be_read(way, tmp_path):
    secret = tmp_path / "seed.txt"
    secret.write_text("1")
    secret.chmod(0o644)
    code = (
        "import sys, os\nprint([os.path.exists(p) for p in sys.argv[1:]], os.path.exists('/usr'))"
    )
    told = sealed(way, code, secret, INSTRUCTOR, "/etc/passwd", Path.home() / ".profile")
    assert told.stdout == "[False, False, False, False] True\n", told.stderr


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_sealed_nothing_can_be_written(way, tmp_path):
    code = (
        "import sys, os\n"
        "places = '/', '/tmp/', '/dev/', '/dev/shm/', '/usr/', sys.prefix + '/'\n"
        "for path in (*(place + 'x' for place in places), *sys.argv[1:]):\n"
        "    try: open(path, 'w').write('x')\n"
        "    except OSError: continue\n"
        "    print('wrote', path)\n"
        "print('done')\n"
    )
    told = sealed(way, code, tmp_path / "x")
    assert told.stdout == "done\n", told.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_sealed_no_other_process_is_seen_or_started(way):
    code = (
        "import os, sys\n"
        "print(os.path.exists('/proc/1'), os.getppid() < 5)\n"
        "try: os.kill(int(sys.argv[1]), 0); print('sees the grader')\n"
        "except OSError: print('alone')\n"
        "for i in range(100):\n"
        "    try: pid = os.fork()\n"
        "    except OSError: print('no fork after', i); break\n"
        "    if not pid: os._exit(0)\n"
    )
    told = sealed(way, code, os.getpid())
    assert told.stdout == "False True\nalone\nno fork after 0\n", told.stderr


@pytest.mark.parametrize("way", WAYS, ids=named)
def test_sealed_it_has_no_powers(way):
    """No way to mount, or to become somebody: its capabilities are none."""
    code = (
        "import ctypes, os\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "print(libc.mount(b'none', b'/usr', b'tmpfs', 0, None), libc.chroot(b'/usr'),\n"
        "      libc.prctl(39, 0, 0, 0, 0))\n"
    )
    told = sealed(way, code)
    assert told.stdout == "-1 -1 1\n", told.stderr


def test_a_child_whose_grader_died_before_it_spoke_ends():
    command = [isolation.PYTHON, *isolation.FLAGS, "-c", process.BOOT]
    told = subprocess.run(command, input=b"\0", capture_output=True, timeout=60)
    assert (told.returncode, told.stderr) == (1, b"the grader is gone\n")


# --- where nothing can be sealed


def test_a_way_that_does_not_work_is_not_chosen(monkeypatch):
    broken = isolation.Isolation("broken", True, lambda argv: ["false", *argv])
    absent = isolation.Isolation("absent", True, lambda argv: ["/no/such/thing", *argv])
    lying = isolation.Isolation("lying", True, lambda argv: ["echo", "here too"])
    monkeypatch.setattr(isolation, "candidates", lambda: [broken, absent, lying])
    isolation.best.cache_clear()
    try:
        assert isolation.best() is isolation.NONE
    finally:
        isolation.best.cache_clear()


def test_an_own_assignment_can_be_judged_in_a_child():
    a = Assignment(
        "own",
        "Own",
        "-",
        (Invariant("all", 10, "d", "h", lambda r: None),),
        (tight(),),
        lambda case: ss.policies.PrefillFirst(),
    )
    with Child(PREEMPTS, "policy.py", "Policy", isolation.best(), Limits()) as child:
        assert Judge(a).score(child.build).points == 10
