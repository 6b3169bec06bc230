"""`release`, and Gradescope."""

import json
import os
import shutil
import stat
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import yaml

from servesim.errors import InputError
from servesim.grade import NAMES, cli
from servesim.grade.release import release, solutions, strip
from tests.grading import INSTRUCTOR, RIGHT, ROOT, doing
from tests.test_grade_check import TOO_MANY
from tests.test_grade_folder import hidden_slots

pytestmark = pytest.mark.skipif(not INSTRUCTOR.is_dir(), reason="this copy has no solutions")

SOLUTION = """\
class Policy:
    def plan(self, view):
        # BEGIN SOLUTION
        # STARTER: raise NotImplementedError("write it")
        first = min(view.waiting, key=secret_of_the_course)
        return Plan([(first.id, first.missing)])
        # END SOLUTION
"""


def test_what_stands_between_the_markers_is_left_out():
    assert strip(SOLUTION, "s") == (
        'class Policy:\n    def plan(self, view):\n        raise NotImplementedError("write it")\n'
    )
    assert strip("a\n", "s") == "a\n"
    assert [len(lines) for lines in solutions(SOLUTION)] == [2]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# BEGIN SOLUTION\n", "s, line 1: this solution does not end"),
        ("x\n# END SOLUTION\n", "s, line 2: a solution ends that has not begun"),
        ("# BEGIN SOLUTION\n  # BEGIN SOLUTION\n", "s, line 2: a solution begins inside"),
    ],
)
def test_a_marker_without_its_partner_is_refused(text, told):
    with pytest.raises(InputError, match=told):
        strip(text, "s")


@pytest.mark.parametrize("name", NAMES)
def test_the_starter_is_the_solution_without_its_middle(name):
    text = strip((INSTRUCTOR / name / "solution.py").read_text(), name)
    assert (ROOT / "assignments" / name / "policy.py").read_text() == text


@pytest.fixture
def repository(tmp_path):
    """Make a small one: what release looks at, and nothing else."""
    home = tmp_path / "home"
    for name in NAMES:
        module = home / f"code/servesim/grade/assignments/{name.replace('-', '_')}.py"
        for path, text in (
            (module, "ASSIGNMENT = 1\n"),
            (home / f"instructor/{name}/solution.py", SOLUTION),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        (home / "assignments" / name).mkdir(parents=True)
    (home / "README.md").write_text("# A course\n")
    return home


def test_nothing_of_the_instructor_s_is_released(repository, tmp_path):
    (repository / ".github/workflows").mkdir(parents=True)
    (repository / ".github/workflows/publish.yml").write_text("on: push\n")
    (repository / "instructor/notes.md").write_text("seed 7\n")
    tool = repository / "tool.sh"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    target = tmp_path / "release"
    files = release(target, repository)
    there = sorted(p.relative_to(target).as_posix() for p in target.rglob("*") if p.is_file())
    assert files == there
    assert not [name for name in there if "instructor" in name or "publish" in name]
    assert stat.S_IMODE((target / "tool.sh").stat().st_mode) == 0o755
    for path in target.rglob("*.py"):
        assert "secret_of_the_course" not in path.read_text()
    matrix = yaml.safe_load((target / ".github/workflows/check.yml").read_text())
    assert matrix["jobs"]["check"]["strategy"]["matrix"]["assignment"] == list(NAMES)


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        (
            "README.md",
            "do this:\n\n    # BEGIN SOLUTION\n",
            "README.md, line 3: this solution does",
        ),
        ("page.md", "    # END SOLUTION\n", "page.md, line 1: a marker of a solution is left"),
        (
            "page.md",
            "one may\n\n  first = min(view.waiting,  key=secret_of_the_course)\n"
            "\n  return Plan([(first.id, first.missing)])\n",
            r"page.md, line 3: these lines stand in the solution instructor/\S+/solution.py",
        ),
    ],
)
def test_a_solution_that_is_left_is_refused_and_nothing_written(
    repository, tmp_path, file, text, told
):
    (repository / file).write_text(text)
    target = tmp_path / "release"
    with pytest.raises(InputError, match=told):
        release(target, repository)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["home"]


def test_a_folder_in_use_is_not_touched(repository, tmp_path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "work.txt").write_text("mine")
    with pytest.raises(InputError, match="is there already"):
        release(tmp_path / "taken", repository)
    assert (tmp_path / "taken" / "work.txt").read_text() == "mine"


def test_the_released_repository_checks_on_its_own_in_a_fresh_clone(tmp_path):
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this needs git and a checkout")
    target, clone = tmp_path / "release", tmp_path / "clone"
    release(target)
    who = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@example.org"}
    who |= {"GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@example.org"}
    for argv in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        subprocess.run(["git", *argv], cwd=target, check=True, env={**os.environ, **who})
    subprocess.run(["git", "clone", "-q", target, clone], check=True)
    given_away = {
        line
        for path in INSTRUCTOR.rglob("solution.py")
        for lines in solutions(path.read_text())
        for line in lines
        if len(line) > 60
    }
    assert given_away
    for path in clone.rglob("*.py"):
        assert not given_away & {"".join(line.split()) for line in path.read_text().splitlines()}
    check_all = (
        "from servesim.grade import NAMES, cli\n"
        "for name in NAMES:\n"
        "    argv = ['check', f'assignments/{name}/policy.py', '--assignment', name]\n"
        "    assert cli.main(argv) == cli.LOST\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", check_all],
        cwd=clone,
        env={**os.environ, "PYTHONPATH": "code"},
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.count("score: 0 of") == len(NAMES)


# --- Gradescope


@pytest.fixture(scope="module")
def autograder(tmp_path_factory):
    root = tmp_path_factory.mktemp("autograder")
    argv = ["gradescope", str(root), "--assignment", "warmup", "--hidden", str(INSTRUCTOR)]
    assert cli.main(argv) == 0
    with zipfile.ZipFile(root / "autograder.zip") as archive:
        archive.extractall(root / "source")
        modes = {i.filename: i.external_attr >> 16 & 0o777 for i in archive.infolist()}
    for name, mode in modes.items():
        (root / "source" / name).chmod(mode)
    (root / "results").mkdir()
    return root


def told_by(root, files):
    shutil.rmtree(root / "submission", ignore_errors=True)
    for name, text in files.items():
        path = root / "submission" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "submission").mkdir(exist_ok=True)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    env |= {"AUTOGRADER": str(root), "PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}
    ran = subprocess.run(
        [root / "source" / "run_autograder"], env=env, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads((root / "results" / "results.json").read_text())


def test_the_autograder_grades_with_nothing_else_at_hand(autograder):
    found = told_by(autograder, {"policy.py": TOO_MANY})
    assert found["score"] == 70
    assert {t["name"]: t["score"] for t in found["tests"]} == {
        "served": 30,
        "slots": 0,
        "order": 20,
        "ttft": 20,
    }
    assert sum(t["max_score"] for t in found["tests"]) == 100


@pytest.mark.parametrize(
    ("files", "score", "told"),
    [
        ({"policy.py": RIGHT}, 100, "all rules are kept"),
        ({"sub/mine.py": doing("print('hello')")}, 100, "all rules are kept"),
        ({}, 0, "no Python file"),
        ({"policy.py": "x ="}, 0, "syntax error"),
        ({"policy.py": doing("import os; os._exit(0)")}, 0, "ended its process"),
    ],
)
def test_whatever_is_handed_in_there_is_a_result(autograder, files, score, told):
    found = told_by(autograder, files)
    assert found["score"] == score
    assert told in found["output"]


def test_what_is_printed_is_told_only_without_hidden_tests(autograder, tmp_path):
    found = told_by(autograder, {"policy.py": doing("print('hello', len(view.waiting))")})
    assert "hello" not in json.dumps(found)
    path, out = tmp_path / "policy.py", tmp_path / "r.json"
    path.write_text(doing("print('hello')"))
    assert (
        cli.main(["results", str(path), "--assignment", "warmup", "--out", str(out), "--unsafe"])
        == 0
    )
    assert "printed:\nhello" in json.loads(out.read_text())["output"]


def test_a_link_is_no_submission_for_gradescope_either(autograder):
    shutil.rmtree(autograder / "submission", ignore_errors=True)
    (autograder / "submission").mkdir()
    (autograder / "elsewhere.py").write_text(RIGHT)
    (autograder / "submission" / "policy.py").symlink_to(autograder / "elsewhere.py")
    out = autograder / "r.json"
    argv = ["results", str(autograder / "submission"), "--assignment", "warmup", "--unsafe"]
    assert cli.main([*argv, "--out", str(out)]) == 0
    assert "is a link" in json.loads(out.read_text())["output"]


def test_of_a_hidden_test_only_the_rule_is_told(autograder):
    text = RIGHT.replace("self.slots = slots", "self.slots = slots + (slots == 3)")
    seed = next(n for n in range(99) if 3 in hidden_slots(n))
    (autograder / "source/hidden/seed.txt").write_text(f"{seed}\n")
    found = told_by(autograder, {"policy.py": text})
    assert found["score"] == 70
    assert "broken in a hidden test" in json.dumps(found)
    assert "#1" not in json.dumps(found)


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError(len(view.waiting))",
        "open(f'seen-{len(view.waiting)}')",
        "import os, sys; print('seen', file=sys.stderr, flush=True); os._exit(1)",
        'print(\'{"score": 1, "seen": 1}\')',
        "while True: print('seen')",
    ],
)
def test_what_a_policy_says_in_a_hidden_test_is_not_told(autograder, text):
    """It could be what the policy sees there."""
    seed = next(n for n in range(99) if 3 in hidden_slots(n))
    (autograder / "source/hidden/seed.txt").write_text(f"{seed}\n")
    found = told_by(autograder, {"policy.py": doing(f"if self.slots == 3:\n    {text}")})
    assert found["score"] < 100
    assert "seen" not in json.dumps(found)
    assert "ValueError" not in json.dumps(found)
    assert "hidden test" in json.dumps(found)


def test_what_is_wrong_with_the_file_itself_is_told_beside_hidden_tests(tmp_path):
    out = tmp_path / "r.json"
    argv = ["results", str(ROOT / "assignments/lab-leak"), "--assignment", "lab-leak", "--unsafe"]
    assert cli.main([*argv, "--hidden", str(INSTRUCTOR), "--out", str(out)]) == 0
    find_it = json.loads(out.read_text())["tests"][0]
    assert "WORKLOAD is empty" in find_it["output"]
    assert "hidden test" not in find_it["output"]


def test_the_archive_is_the_same_each_time_and_the_scripts_are_sound(autograder, tmp_path):
    argv = ["gradescope", str(tmp_path / "again.zip"), "--assignment", "warmup"]
    assert cli.main([*argv, "--hidden", str(INSTRUCTOR)]) == 0
    first = (autograder / "autograder.zip").read_bytes()
    assert (tmp_path / "again.zip").read_bytes() == first
    for name in ("setup.sh", "run_autograder"):
        subprocess.run(["bash", "-n", autograder / "source" / name], check=True)
