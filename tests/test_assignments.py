"""Every assignment: who scores what, and what a student is told."""

import ast
import functools
import re
from pathlib import Path

import pytest

from servesim.errors import InputError
from servesim.grade import NAMES, Case, FileRule, Invariant, checking, find, literal
from servesim.grade.assignments.labs import handed_in
from servesim.grade.checking import check, counterexample, first_answer
from servesim.grade.hidden import hidden_cases
from servesim.grade.judge import Judge, Maker, Score
from servesim.grade.load import load
from servesim.grade.pages import rules
from servesim.grade.shrink import shrink
from tests.grading import INSTRUCTOR, ROOT

GRADED = [name for name in NAMES if name != "warmup"]  # a sample, and smaller than it should be
LABS = [name for name in GRADED if name.startswith("lab-")]


def files(*kinds: str) -> list[tuple[str, Path]]:
    return [
        (name, path)
        for name in GRADED
        for kind in kinds
        for path in sorted((INSTRUCTOR / name).glob(kind))
    ]


def named(value: object) -> str:
    return value.relative_to(INSTRUCTOR).as_posix() if isinstance(value, Path) else str(value)


def hidden(name: str, seed: int) -> list[Case]:
    return hidden_cases(find(name), INSTRUCTOR, seed)


@functools.cache
def judge_of(name: str, seed: int | None = None) -> Judge:
    """Return the judge of the public cases, or of hidden ones; it runs the reference once."""
    return Judge(find(name), None if seed is None else hidden(name, seed))


@functools.cache
def scored(file: Path, name: str) -> tuple[Judge, Score, Maker | None]:
    judge = judge_of(name)
    return judge, *first_answer(judge, file)


def lost(file: Path, name: str) -> dict[str, float]:
    _, score, _ = scored(file, name)
    assert not score.refused, score.refused
    return {m.rule.name: m.rule.points - m.points for m in score.marks if not m.full}


def written(path: Path) -> list[str]:
    """Return the lines of a solution that a student has to write."""
    parts = re.findall(r"# BEGIN SOLUTION\n(.*?)# END SOLUTION", path.read_text(), re.DOTALL)
    lines = "".join(parts).splitlines()
    return [line for line in lines if line.strip() and "# STARTER" not in line]


@pytest.mark.parametrize("name", GRADED)
def test_the_points_add_up_to_100_and_the_solution_is_short(name):
    assignment = find(name)
    assert assignment.points == 100
    assert assignment.runs <= 10
    assert 0 < len(written(INSTRUCTOR / name / "solution.py")) <= 40
    assert len(list((INSTRUCTOR / name / "wrong").glob("*.py"))) >= 8


@pytest.mark.parametrize("name", GRADED)
def test_the_starter_scores_nothing_and_says_what_is_missing(name):
    path = ROOT / "assignments" / name / "policy.py"
    score, _ = first_answer(Judge(find(name)), path)
    assert score.points == 0
    assert not score.refused
    assert all(mark.failure or mark.note for mark in score.marks)
    assert score.hint


@pytest.mark.parametrize(("name", "file"), files("solution.py", "right/*.py"), ids=named)
def test_correct_solutions_score_full(name, file):
    assert lost(file, name) == {}


@pytest.mark.parametrize(("name", "file"), files("solution.py", "right/*.py"), ids=named)
def test_correct_solutions_score_full_on_hidden_cases(name, file):
    judge = judge_of(name, seed=1 if file.parent.name == "right" else 0)  # one of the two each
    score, _ = first_answer(judge, file)
    assert score.points == pytest.approx(judged(judge)), score


def judged(judge: Judge) -> float:
    """Return the points of the rules that some case of these is judged by."""
    of_cases = {rule.name for case in judge.cases for rule in judge.assignment.rules_of(case)}
    rules = judge.assignment.rules
    return sum(r.points for r in rules if r.name in of_cases or isinstance(r, FileRule))


def test_the_warm_up_is_won_by_the_plain_policy_whatever_the_seed():
    for seed in range(10):
        judge = judge_of("warmup", seed)
        score, _ = first_answer(judge, INSTRUCTOR / "warmup" / "solution.py")
        assert score.full, (seed, score)


@pytest.mark.parametrize("name", GRADED)
def test_every_correct_solution_has_an_alternative_that_is_another(name):
    others = list((INSTRUCTOR / name / "right").glob("*.py"))
    assert others
    trees = {
        ast.dump(ast.parse(p.read_text())) for p in [*others, INSTRUCTOR / name / "solution.py"]
    }
    assert len(trees) == len(others) + 1


@pytest.mark.parametrize("name", GRADED)
def test_hidden_cases_depend_on_the_seed_alone(name):
    assert hidden(name, 1) == hidden(name, 1)
    assert hidden(name, 1) != hidden(name, 2)
    known = {case.name for case in find(name).cases}
    assert {case.family for case in hidden(name, 1)} <= known


@pytest.mark.parametrize(("name", "file"), files("wrong/*.py"), ids=named)
def test_wrong_solutions_lose_what_they_break_and_nothing_else(name, file):
    first = file.read_text().splitlines()[0]
    told = set(re.fullmatch(r"# loses: (.*)", first)[1].split(", "))
    gone = lost(file, name)
    assert set(gone) == told
    for rule in find(name).rules:
        if isinstance(rule, Invariant | FileRule) and rule.name in told:
            assert gone[rule.name] == rule.points


@pytest.mark.parametrize("name", GRADED)
def test_every_rule_is_broken_by_a_wrong_solution(name):
    broken: set[str] = set()
    for path in (INSTRUCTOR / name / "wrong").glob("*.py"):
        broken |= set(path.read_text().splitlines()[0].removeprefix("# loses: ").split(", "))
    assert broken == {rule.name for rule in find(name).rules}


def one_for_each_rule() -> list[tuple[str, Path]]:
    """Return a wrong solution for each invariant: of those that lose it first, the shortest."""
    chosen: dict[tuple[str, str], tuple[str, Path]] = {}
    for name, path in sorted(files("wrong/*.py"), key=lambda f: f[1].stat().st_size):
        told = path.read_text().splitlines()[0].removeprefix("# loses: ").split(", ")
        first = next(rule for rule in find(name).rules if rule.name in told)
        if isinstance(first, Invariant):
            chosen.setdefault((name, first.name), (name, path))
    return [*chosen.values()]


@pytest.mark.parametrize(("name", "file"), one_for_each_rule(), ids=named)
def test_a_counterexample_is_small_and_names_the_place(name, file, monkeypatch):
    # Enough to leave requests out. What is left for making them shorter makes the tests long.
    monkeypatch.setattr(checking, "shrink", functools.partial(shrink, most_runs=120))
    judge, score, make = scored(file, name)
    assert make is not None
    example = counterexample(judge, score, make)
    assert example is not None
    assert len(example.shrunk.case.requests) <= 5
    assert example.shrunk.failure.step is not None
    assert example.shrunk.failure.request is not None
    assert re.search(r"\d", example.shrunk.failure.detail)


@pytest.mark.parametrize("file", ["last_joined.py", "fills_gaps.py"])
def test_throwing_out_the_last_to_join_fails_on_a_few_requests(file, monkeypatch):
    monkeypatch.setattr(checking, "shrink", functools.partial(shrink, most_runs=20))
    judge, score, make = scored(INSTRUCTOR / "preemption" / "wrong" / file, "preemption")
    example = counterexample(judge, score, make)
    assert (example.mark.rule.name, example.shrunk.case.name) == ("oldest", "back")
    assert len(example.shrunk.case.requests) <= 5


@pytest.mark.parametrize("name", GRADED)
def test_handing_in_a_shipped_policy_scores_nothing(name, tmp_path):
    kind = find(name).class_name
    file = tmp_path / "policy.py"
    file.write_text(f"from servesim.policies import VLLM\n\n\nclass {kind}(VLLM):\n    pass\n")
    report = check(file, name)
    assert report.score.points == 0
    assert "shipped policy" in report.score.refused


@pytest.mark.parametrize("name", GRADED)
def test_the_starter_loads_and_has_a_docstring(name):
    path = ROOT / "assignments" / name / "policy.py"
    load(path.read_text(), str(path), find(name).class_name)
    assert ast.get_docstring(ast.parse(path.read_text()))


# --- what is handed in beside the policy is read, and never run


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "sets no WORKLOAD"),
        ("def f():\n    WORKLOAD = [(0, 1, 1)]", "sets no WORKLOAD"),
        ("WORKLOAD = []", "is empty"),
        ("WORKLOAD = 7", "is empty"),
        ("WORKLOAD = [(0, 1, 1)] * 6", "must be written out"),
        ("WORKLOAD = [(0, 1, 1)] + exit()", "must be written out"),
        ("WORKLOAD = {[]: 1}", "must be written out"),
        (f"WORKLOAD = {[(0, 1, 1)] * 6}", "at most 5"),
        ("WORKLOAD = [(0, 1)]", "is no row"),
        ("WORKLOAD = [5]", "is no row"),
        ("WORKLOAD = [(0, 1, True)]", "output_len is a whole number"),
        ("WORKLOAD = [(-1, 1, 1)]", "arrival_ms is a whole number"),
        ("WORKLOAD = [(0, 0x" + "f" * 9000 + ", 1)]", "prompt_len is a whole number"),
        ("WORKLOAD = [(5, 1, 1), (4, 1, 1)]", "sort the rows"),
    ],
)
def test_a_workload_that_is_none_is_one_sentence(text, told):
    with pytest.raises(InputError, match=told) as caught:
        handed_in(text)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_a_workload_is_read_as_it_is_written():
    first, second = handed_in("WORKLOAD: list = [(0, 10, 3), [20, 7, 1]]\n")
    assert (first.arrival_ms, first.prompt_len, first.output_len) == (0, 10, 3)
    assert (second.id, second.arrival_ms, second.prompt_len, second.output_len) == (1, 20, 7, 1)


def test_after_a_right_mend_the_hint_points_at_the_workload():
    find_it = find("lab-leak").rules[0]
    _, both, _ = scored(ROOT / "assignments" / "lab-leak" / "policy.py", "lab-leak")
    assert both.hint == find_it.hint
    _, mended, _ = scored(INSTRUCTOR / "lab-leak" / "wrong" / "no_workload.py", "lab-leak")
    assert mended.hint == find_it.last_hint != find_it.hint
    assert "WORKLOAD" in mended.hint


def test_a_workload_that_no_cache_of_the_lab_holds_is_called_so():
    failure = find("lab-leak").rules[0].check("WORKLOAD = [(0, 10, 3), (0, 385, 1)]")
    assert failure is not None
    assert failure.detail.startswith(
        "no policy could pass it; request 1 with its longest answer, 385 + 128 tokens, needs 33 "
        "blocks and the cache has 32"
    )


def serves_one_at_a_time(name: str) -> Path:
    wrong = INSTRUCTOR / name / "wrong"
    return next(p for p in wrong.glob("one_*.py") if p.stem in ("one_at_a_time", "one_by_one"))


@pytest.mark.parametrize("name", ["aging", "token-budget", "preemption", *LABS])
def test_serving_one_at_a_time_earns_little(name):
    _, score, _ = scored(serves_one_at_a_time(name), name)
    files = sum(rule.points for rule in find(name).rules if isinstance(rule, FileRule))
    assert score.points - files <= 40


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_code_in_its_rules_as_code(name):
    """A terminal, which has no other face, keeps the backticks."""
    table = rules(name)
    assert "`" not in table._repr_html_()
    assert table._repr_html_().count("<code>") == repr(table).count("`") / 2
    if name == "aging":
        assert "At most <code>slots</code> requests" in table._repr_html_()
        assert "is at most 1.5 × the reference's, none from 2.5 × on" in repr(table)


def test_of_two_values_the_last_counts():
    assert literal("A = 1\nB = A = 2\n", "A") == 2


def test_a_lab_shows_no_counterexample_before_one_was_found():
    for name in LABS:
        path = ROOT / "assignments" / name / "policy.py"
        assert check(path, name).counterexample is None
