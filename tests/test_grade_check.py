"""`check`: what a student sees."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import servesim as ss
from servesim.errors import InputError
from servesim.grade import (
    NAMES,
    Assignment,
    Case,
    FileRule,
    Invariant,
    Performance,
    Run,
    check,
    cli,
    find,
    source,
)
from servesim.grade.checking import counterexample, first_answer
from servesim.grade.judge import Judge, Student, run
from servesim.grade.report import picture, timeline
from servesim.grade.shrink import shrink
from servesim.policies import PrefillFirst
from servesim.request import NS_PER_MS
from tests.grading import INSTRUCTOR, RIGHT, ROOT, doing, grader

STARTER = ROOT / "assignments" / "warmup" / "policy.py"

TOO_MANY = RIGHT.replace("self.slots - len", "self.slots + 1 - len")
LATEST_FIRST = RIGHT.replace("view.waiting[:free]", "list(view.waiting)[::-1][:free]")
NOBODY = RIGHT.replace("batch = ", "batch = [] and ")
OVERSHOOTS = RIGHT.replace("r.missing)", "r.missing + 1)")


@pytest.fixture
def handed_in(tmp_path):
    def write(text, name="policy.py"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def points(report):
    return {mark.rule.name: mark.points for mark in report.score.marks}


FULL = {"served": 30, "slots": 30, "order": 20, "ttft": 20}


# --- marks


@pytest.mark.parametrize(
    ("text", "lost"),
    [(RIGHT, set()), (TOO_MANY, {"slots"}), (LATEST_FIRST, {"order"}), (NOBODY, set(FULL))],
)
def test_each_mistake_loses_the_points_of_its_rule(handed_in, text, lost):
    report = check(handed_in(text), "warmup")
    assert points(report) == {rule: 0 if rule in lost else of for rule, of in FULL.items()}
    assert report.score.hint == next(
        (rule.hint for rule in find("warmup").rules if rule.name in lost), ""
    )


def test_the_starter_scores_nothing_and_says_what_is_missing():
    report = check(STARTER, "warmup")
    assert report.score.points == 0
    told = repr(report)
    assert "NotImplementedError: return a Plan" in told
    line = (
        STARTER.read_text()
        .splitlines()
        .index(next(line for line in STARTER.read_text().splitlines() if "NotImplemented" in line))
    )
    assert f"line {line + 1}" in told
    assert report.score.runs <= 10


def test_slower_runs_earn_part_of_the_points(handed_in):
    # One that lets in a single newcomer every other step is late, and no worse than that.
    text = RIGHT.replace("view.waiting[:free]", "view.waiting[: min(free, view.step % 3 == 0)]")
    report = check(handed_in(text), "warmup")
    assert 0 < points(report)["ttft"] < 20
    assert {k: v for k, v in points(report).items() if k != "ttft"} == {
        k: v for k, v in FULL.items() if k != "ttft"
    }
    [mark] = [mark for mark in report.score.marks if mark.rule.name == "ttft"]
    told = r"busy: [\d.]+ ms, reference [\d.]+, bound [\d.]+: \d+ % of the points"
    assert re.fullmatch(told, mark.note)


def rule(**changes):
    given = {"measure": lambda r: None, "bound": lambda c: 0.0}
    return Performance("p", 10, "demand", "hint", **{**given, **changes})


@pytest.mark.parametrize(
    ("value", "share"),
    [(50, 1), (100, 1), (110, 0.8), (125, 0.5), (150, 0), (999, 0), (None, 0)],
)
def test_points_fall_from_the_reference_s_distance_to_the_bound(value, share):
    # With the bound 50 and the reference 100, the excess of 125 is 75 / 50.
    assert rule().share(value, 100, 50) == pytest.approx(share)


@pytest.mark.parametrize(("value", "share"), [(110, 1), (125, 0.8333), (150, 0.5556), (200, 0)])
def test_a_rule_says_where_the_points_begin_and_end(value, share):
    found = rule(full_at=1.2, none_at=3.0).share(value, 100, 50)
    assert found == pytest.approx(share, abs=1e-4)


def test_more_is_better_where_a_rule_says_so():
    more = rule(higher_is_better=True)
    assert [more.share(v, 8.0, 10.0) for v in (10, 8, 7, 6, 1)] == [1, 1, 0.5, 0, 0]


def test_a_reference_at_the_bound_must_be_met():
    assert rule().share(10.0, 10.0, 10.0) == 1
    assert rule().share(10.1, 10.0, 10.0) == 0


def small(**changes):
    requests = tuple(ss.Request(i, i * NS_PER_MS, 8, 3) for i in range(4))
    given = {
        "name": "own",
        "title": "Own",
        "task": "-",
        "rules": (Invariant("all", 10, "demand", "hint", lambda run: None),),
        "cases": (Case("one", requests),),
        "reference": lambda case: ss.policies.PrefillFirst(),
    }
    return Assignment(**{**given, **changes})


ANY = """\
from servesim import Plan


class Policy:
    def plan(self, view):
        if view.step == {step}:
            {then}
        return Plan([(r.id, r.missing) for r in [*view.running, *view.waiting]])
"""


@pytest.mark.parametrize(("step", "kept"), [(0, False), (3, True)])
def test_a_refused_plan_can_cost_one_rule_alone_once_somebody_is_served(handed_in, step, kept):
    rules = (
        Invariant("memory", 6, "d", "h", lambda run: None, engine_rules=("known",)),
        Invariant("other", 4, "d", "h", lambda run: None),
    )
    path = handed_in(ANY.format(step=step, then="return Plan([(99, 1)])"))
    report = check(path, small(rules=rules))
    assert points(report) == {"memory": 0, "other": 4 if kept else 0}
    assert "rule 'known': no such request" in str(report.score.marks[0].failure)


def test_a_run_that_breaks_off_otherwise_keeps_no_rule(handed_in):
    rules = (
        Invariant("memory", 6, "d", "h", lambda run: None, engine_rules=("known",)),
        Invariant("other", 4, "d", "h", lambda run: None),
    )
    report = check(handed_in(ANY.format(step=3, then="1 / 0")), small(rules=rules))
    assert points(report) == {"memory": 0, "other": 0}


def test_a_run_without_end_is_broken_off(handed_in):
    case = Case("one", (ss.Request(0, 0, 8, 100),), max_steps=20)
    report = check(handed_in(RIGHT.replace("slots)", "slots=9)")), small(cases=(case,)))
    assert "not over after 20 steps" in str(report.score.marks[0].failure)


def test_a_rule_can_be_about_the_file(handed_in):
    def named(text):
        return None if "Ada" in text else ss.grade.Failure("", "write your name into the file")

    a = small(rules=(FileRule("name", 5, "d", "h", named),))
    plain = handed_in(ANY.format(step=-1, then="pass"))
    assert points(check(plain, a)) == {"name": 0}
    assert points(check(handed_in("# Ada\n" + plain.read_text()), a)) == {"name": 5}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"rules": small().rules * 2}, "each rule a name"),
        ({"cases": small().cases * 2}, "each case a name"),
        ({"rules": (rule(cases=("two",)),)}, "no case 'two'"),
        ({"rules": (rule(),), "cases": tuple(Case(str(i), ()) for i in range(6))}, "12 runs"),
    ],
)
def test_an_assignment_that_cannot_work_is_refused(changes, told):
    with pytest.raises(InputError, match=told):
        small(**changes)


# --- what a file may hold


def refusal(text, class_name="Policy"):
    try:
        source.check(text, class_name)
    except source.Refused as reason:
        return str(reason)
    return ""


@pytest.mark.parametrize(
    "text",
    [
        "import servesim.policies",
        "import servesim.engine as e",
        "from servesim import policies",
        "from servesim.policies.vllm import VLLM",
        "from servesim import *",
        "import servesim as ss\nx = ss.policies",
        "import servesim\nservesim.simulate",
        "import importlib\nimportlib.import_module('servesim.policies.vllm')",
        "import numpy",
        "from . import x",
        "class P: reserve_all = True",
    ],
)
def test_what_a_policy_may_not_use_is_refused_with_the_line(text):
    assert re.search(r"line \d", refusal(text + "\nclass Policy: pass"))


@pytest.mark.parametrize(
    "text",
    [
        "import servesim as ss\nfrom servesim import Plan, View, Progress\nPlan, ss.View",
        "import math, heapq, collections\nfrom dataclasses import dataclass",
        "def policies(): pass\nview = policies\nview.policies = 3",
    ],
)
def test_what_a_policy_may_use_is_not(text):
    assert refusal(text + "\nclass Policy: pass") == ""


SHIPPED = sorted((ROOT / "code/servesim/policies").glob("[!_]*.py"))


def whole(path):
    """Return the name of a policy that stands on its own, if a file holds one."""
    kinds = {k.__name__ for k in ss.policies.BUILT_IN.values()}
    found = re.findall(r"^class (\w+)\(Policy\)", path.read_text(), re.MULTILINE)
    return next((name for name in found if name in kinds), None)


@pytest.mark.parametrize("path", [p for p in SHIPPED if whole(p)], ids=lambda p: p.stem)
def test_a_copy_is_found_even_with_other_names(path):
    lines = path.read_text().replace(f"class {whole(path)}", "class Policy").splitlines()
    unwanted = re.compile(r"from|import| +(knows_output_length|reserve_all) =")
    text = "\n".join(line for line in lines if not unwanted.match(line))
    for old, new in (("step", "draft"), ("joining", "fresh"), ("group", "crowd"), ("left", "rest")):
        text = re.sub(rf"\b{old}\b", new, text)
    text = re.sub(r'""".*?"""', '"""Mine."""', text, flags=re.DOTALL)
    short = path.stem == "naive"  # three lines, which anyone would write
    assert bool(refusal(text)) is not short
    assert short or "a copy of the shipped policy" in refusal(text)


def test_solutions_are_no_copies():
    files = sorted(INSTRUCTOR.rglob("*.py"))
    if not files:
        pytest.skip("this copy has no solutions")
    told = {path.name: refusal(path.read_text()) for path in files if path.name != "hidden.py"}
    assert not {name: text for name, text in told.items() if text}


# --- fresh for each case

KEEPS_COUNT = """\
from servesim import Plan

built = []


class Policy:
    def __init__(self, slots):
        built.append(slots)
        self.slots, self.steps = slots, 0
        assert len(built) == 1, "an earlier case is remembered"

    def plan(self, view):
        self.steps += 1
        assert self.steps == view.step + 1, "a step is forgotten"
        free = self.slots - len(view.running)
        return Plan([(r.id, r.missing) for r in [*view.running, *view.waiting[:free]]])
"""


def test_a_policy_keeps_its_notes_for_one_case_and_no_longer(handed_in):
    assert check(handed_in(KEEPS_COUNT), "warmup").score.full


# --- the small workload


@pytest.mark.parametrize(
    ("text", "rule", "most"),
    [(TOO_MANY, "slots", 5), (LATEST_FIRST, "order", 2), (OVERSHOOTS, "served", 1)],
)
def test_the_workload_is_made_small_and_still_fails(handed_in, text, rule, most):
    judge = Judge(find("warmup"))
    score, make = first_answer(judge, handed_in(text))
    assert make is not None
    assert judge.runs <= 10
    found = counterexample(judge, score, make)
    assert found is not None
    assert found.mark.rule.name == rule
    assert len(found.shrunk.case.requests) <= most
    again = judge.run(found.shrunk.case, make)
    assert judge.failure(found.mark.rule, again) == found.shrunk.failure
    assert found.shrunk.runs <= 300
    told = ss.grade.report.counterexample_text(found)
    assert str(found.shrunk.failure.step) in told
    assert "yours:" in told
    assert "the reference's (PrefillFirst" in told


def test_shrinking_finds_the_two_that_matter_and_makes_them_plain():
    requests = tuple(ss.Request(i, i * NS_PER_MS, 100 + i, 50) for i in range(24))

    def fails(case):
        ids = {r.id: r for r in case.requests}
        bad = 7 in ids and 19 in ids and ids[19].prompt_len >= 10
        return ss.grade.Failure("c", "both") if bad else None

    found = shrink(Case("c", requests), ss.grade.Failure("c", "both"), fails)
    assert [(r.id, r.prompt_len, r.output_len) for r in found.case.requests] == [
        (7, 1, 1),
        (19, 10, 1),
    ]
    assert [r.arrival_ns for r in found.case.requests] == [0, 0]


def test_shrinking_stops_when_its_runs_are_used_up():
    requests = tuple(ss.Request(i, 0, 1000, 1000) for i in range(64))
    runs = []

    def fails(case):
        runs.append(case)
        return ss.grade.Failure("c", "x") if len(case.requests) > 40 else None

    found = shrink(Case("c", requests), ss.grade.Failure("c", "x"), fails, most_runs=25)
    assert len(runs) == found.runs == 25
    assert len(found.case.requests) > 40


def test_the_timeline_shows_each_step_and_points_at_the_one_that_fails(handed_in):
    found = check(handed_in(LATEST_FIRST), "warmup").counterexample
    assert found is not None
    lines = timeline(found.yours, found.shrunk.failure.step)
    names = [f"r{r.id}" for r in found.shrunk.case.requests]
    assert [line.split()[0] for line in lines[:-1]] == ["step", "ms", *names]
    assert lines[2:4] == [f"  {names[0]} .P", f"  {names[1]} P"]
    assert lines[-1].index("^") == lines[3].index("P")


def long_run():
    requests = (ss.Request(0, 0, 10, 90), *(ss.Request(i, 0, 10, 20) for i in (1, 2)))
    case = Case("c", requests)
    return Run(case, ss.simulate(requests, PrefillFirst(), record_steps=True))


def test_a_timeline_shows_nobody_of_whom_nothing_happens_in_its_steps():
    lines = timeline(long_run(), 80)
    assert [line.split()[0] for line in lines[:-1]] == ["step", "ms", "r0"]
    assert [line.split()[0] for line in timeline(long_run())] == ["step", "ms", "r0"]


def test_two_timelines_can_show_the_same_steps():
    lines = timeline(long_run(), start=5)
    assert lines[0].split()[:2] == ["step", "5"]
    assert [line.split()[0] for line in lines] == ["step", "ms", "r0", "r1", "r2"]
    assert timeline(long_run(), start=1000) == timeline(long_run())  # it was over before


# --- print, the debugger, the page


def call(*argv, **options):
    return subprocess.run(grader(*argv), capture_output=True, text=True, timeout=120, **options)


def test_print_and_the_debugger_work(handed_in):
    body = "if view.step == 3 and not getattr(self, 'asked', False):\n    self.asked = True\n"
    path = handed_in(doing(body + "    breakpoint()\n    print('after', view.step)"))
    told = call("check", path, "--assignment", "warmup", input="p view.step * 14\n" + "c\n" * 3)
    assert "42" in told.stdout
    assert "after 3" in told.stdout
    assert "score: 100 of 100" in told.stdout
    assert told.returncode == 0


def test_shrinking_prints_nothing_and_stops_nowhere(handed_in, capsys):
    text = TOO_MANY.replace("        \n", "").replace("        pass\n", "        print('seen')\n")
    judge = Judge(find("warmup"))
    score, make = first_answer(judge, handed_in(text))
    assert "seen" in capsys.readouterr().out
    hook = sys.breakpointhook
    assert counterexample(judge, score, make) is not None
    assert capsys.readouterr().out == ""
    assert sys.breakpointhook is hook


def test_a_page_shows_both_runs(handed_in, tmp_path, capsys):
    page = tmp_path / "report.html"
    path = str(handed_in(TOO_MANY))
    assert cli.main(["check", path, "--assignment", "warmup", "--html", str(page)]) == 1
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") >= 2 + text.count("<details name=") > 2
    assert len(re.findall('<details name="yours" open><summary>', text)) == 1
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert "it is number 5 in a batch that has 4 slots" in text
    assert check(path, "warmup")._repr_html_() in text


def test_json_holds_what_the_text_does(handed_in, capsys):
    assert cli.main(["check", str(handed_in(TOO_MANY)), "--assignment", "warmup", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["points"], said["of"], said["refused"]) == (70, 100, None)
    assert said["runs"] <= 10
    assert len(said["counterexample"]["requests"]) <= 5
    assert said["counterexample"]["rule"] == "slots"


def test_it_can_be_run_as_it_will_be_graded(handed_in, capsys):
    path = str(handed_in(doing("print('from the child') if view.step == 0 else 0")))
    assert cli.main(["check", path, "--assignment", "warmup", "--isolated"]) == 0
    said = capsys.readouterr().out
    assert "from the child" in said
    assert "kept apart by" in said


def test_a_page_without_processes_checks_too(handed_in):
    """JupyterLite has neither subprocess nor resource; `check` must not want them."""
    code = (
        "import sys\n"
        "for name in ('resource', 'select', '_posixsubprocess', 'multiprocessing', 'signal'):\n"
        "    sys.modules[name] = None\n"
        "sys.platform = 'emscripten'\n"
        "from servesim.grade import check\n"
        f"print(repr(check({str(handed_in(RIGHT))!r}, assignment='warmup')))\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert "score: 100 of 100" in told.stdout
    assert "runs in this page, and is not kept apart" in told.stdout


# --- bad input


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        ((), "required: COMMAND"),
        (("check", "nowhere.py", "--assignment", "warmup"), "nowhere.py: No such file"),
        (("check", "x.py", "--assignment", "none"), "unknown assignment 'none'; known are warmup"),
        (("check", "x.py"), "required: --assignment"),
        (("check", ".", "--assignment", "warmup"), "Is a directory"),
        (
            ("check", STARTER, "--assignment", "warmup", "--html", "no/where.html"),
            "--html no/where",
        ),
        (("grade", "nowhere", "--assignment", "warmup", "--out", "g.csv"), "is not a folder"),
        (("release", ROOT / "code"), "is there already"),
        (("gradescope", "a.zip", "--assignment", "warmup", "--hidden", "tests"), "no hidden.py"),
        (("results", "nowhere", "--assignment", "warmup", "--unsafe", "--out", "r.json"), "exist"),
    ],
)
def test_bad_input_is_told_in_one_sentence(argv, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert cli.main([str(a) for a in argv]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
    assert err.startswith("servesim.grade: ")
    assert os.listdir(tmp_path) == []


def test_ctrl_c_says_where(handed_in, capsys):
    text = doing("if view.step == 2: raise KeyboardInterrupt")
    assert cli.main(["check", str(handed_in(text)), "--assignment", "warmup"]) == 130
    assert re.search(r"interrupted in step 2 at .*policy.py, line 9", capsys.readouterr().err)


def test_every_student_file_name_is_shown_as_given(handed_in):
    report = check(Path(handed_in(RIGHT, "my policy.py")), "warmup")
    assert "my policy.py" in repr(report)


# --- what students stumbled over


@pytest.mark.parametrize("name", NAMES)
def test_to_turn_everyone_away_earns_nothing(name):
    """With nobody to serve, no slot is free, nobody is passed and every run is short."""

    class Shuts:
        def plan(self, view):
            return ss.Plan(rejected=[r.id for r in view.waiting])

    score = Judge(find(name)).score(lambda case: Student(Shuts()), "")
    assert score.points == 0
    told = {str(mark.failure) for mark in score.marks if isinstance(mark.rule, Invariant)}
    assert all("it is turned away; in an assignment everybody has to be served" in t for t in told)


def test_a_picture_shows_who_is_in_the_batch_and_gets_no_tokens():
    class Alternates:
        def plan(self, view):
            both = [*view.running, *view.waiting]
            return ss.Plan([(r.id, r.missing) for r in both[view.step % len(both) :][:1]])

    case = Case(
        "two", tuple(ss.Request(id=i, arrival_ns=0, prompt_len=4, output_len=3) for i in (0, 1))
    )
    assert "idle" in picture(run(case, lambda case: Alternates()), "x").to_html()


def test_to_leave_the_debugger_ends_the_check(handed_in):
    told = call(*("check", handed_in(doing("breakpoint()")), "--assignment", "warmup"), input="q\n")
    assert told.returncode == 130
    assert told.stderr == "servesim.grade: interrupted\n"


def test_a_notebook_is_named_as_what_it_is(handed_in):
    found = check(handed_in("{}", "policy.ipynb"), "warmup")
    assert found.score.refused == "the file is a notebook; hand in the Python file, policy.py"


def test_a_reader_that_has_seen_enough_costs_no_traceback(handed_in):
    read, write = os.pipe()
    os.close(read)
    command = grader("check", str(handed_in(RIGHT)), "--assignment", "warmup")
    told = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, timeout=120)
    os.close(write)
    assert told.stderr == ""


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("lab-")])
@pytest.mark.parametrize("rows", [[], [(0, 8, 1)]])
def test_a_lab_says_on_which_server_a_workload_is_tried(name, rows):
    """Without it nobody can work out which workload would fail."""
    rule = next(rule for rule in find(name).rules if isinstance(rule, FileRule))
    failure = rule.check(f"WORKLOAD = {rows}")
    assert re.search(r"\(tried with \w+=\d+ and 32 blocks of 16 tokens\)$", failure.detail)
