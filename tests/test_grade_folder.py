"""`grade`: a folder of submissions."""

import csv
import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from servesim.errors import InputError
from servesim.grade import cli, find, folder, isolation, roster
from servesim.grade.folder import Graded, Task, Terms, grade
from servesim.grade.process import Limits
from tests.grading import HOSTILE, INSTRUCTOR, RIGHT, doing, grader
from tests.test_grade_check import LATEST_FIRST, TOO_MANY

pytestmark = pytest.mark.skipif(os.name != "posix", reason="grading needs a POSIX system")

SHORT = Limits(plan_s=2.0, load_s=6.0)
TASK = Task("warmup", unsafe=True, limits=SHORT)
DUE = datetime(2026, 10, 1, 12, tzinfo=UTC).timestamp()


@pytest.fixture
def handed_in(tmp_path):
    """Write submissions; a time is given in days after the due date."""

    def write(files, days=0.0):
        where = tmp_path / "in"
        for name, text in files.items():
            path = where / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            os.utime(path, (DUE + days * 86_400,) * 2)
        return where

    return write


def rows_of(path):
    with open(path, newline="") as lines:
        return {row["student"]: row for row in csv.DictReader(lines)}


def listed(where, **options):
    return roster.entries(roster.submissions(where), options.get("names"))


# --- who, and what counts


def test_files_and_folders_are_found_and_other_things_are_not(handed_in):
    where = handed_in(
        {
            "ada.py": RIGHT,
            "bob/policy.py": RIGHT,
            "bob/other.py": "",
            "eve/mine.py": RIGHT,
            "zoe/readme.txt": "",
            "notes.txt": "",
            ".hidden.py": "",
            "__pycache__/x.py": "",
        }
    )
    found = {s.name: s.path.name for s in roster.submissions(where)}
    assert found == {"ada": "ada.py", "bob": "policy.py", "eve": "mine.py"}


@pytest.mark.parametrize(
    ("name", "owner"),
    [
        ("ada", "Ada"),
        ("ada_123_456_policy", "Ada"),
        ("ada-2", "Ada"),
        ("ADA (1)", "Ada"),
        ("adam", "Adam"),
        ("adam_LATE_1", "Adam"),
        ("adamant", None),
        ("zoe", None),
        ("s42.policy", "Bob"),
    ],
)
def test_a_name_belongs_to_the_longest_listed_beginning(name, owner, tmp_path):
    path = tmp_path / "roster.csv"
    path.write_text("student,file\nAda,ada\nAdam,adam.py\nBob,s42\nEve,\n")
    assert roster._owner(name, roster.read_roster(path)) == owner


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "needs a header"),
        ("name\nada\n", "needs a header"),
        ("student\nada\nada\n", "line 3: 'ada' is listed twice"),
        ("student,file\n,x\n", "line 2: the student is missing"),
        ("student\n\xff", "is not a CSV file in UTF-8"),
    ],
)
def test_a_bad_roster_is_refused_with_its_line(tmp_path, text, told):
    path = tmp_path / "roster.csv"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=told):
        roster.read_roster(path)


@pytest.mark.parametrize(
    ("days", "late"), [(-3, 0), (0, 0), (0.001, 1), (0.99, 1), (1.5, 2), (6.9, 7)]
)
def test_a_day_begun_is_a_day_late(days, late):
    s = roster.Submission("ada", Path("ada.py"), DUE + days * 86_400)
    assert roster.days_late(s, DUE) == late
    assert roster.days_late(s, None) == 0


def test_a_name_can_tell_its_time_and_that_it_is_late(handed_in):
    where = handed_in({"ada_2026-09-30T23-59-07.py": RIGHT, "bob_LATE_1.py": RIGHT})
    ada, bob = roster.submissions(where)
    assert datetime.fromtimestamp(ada.when) == datetime(2026, 9, 30, 23, 59, 7)
    assert roster.days_late(bob, DUE) == 1


@pytest.mark.parametrize("text", ["tomorrow", "2026-13-01", ""])
def test_a_bad_due_date_is_refused(text):
    with pytest.raises(InputError, match="write the time as"):
        roster.moment(text)


def test_work_may_be_due_at_the_end_of_time(handed_in):
    due = roster.moment("9999-12-31T23:59+00:00")
    (ada,) = roster.submissions(handed_in({"ada.py": RIGHT}))
    assert (folder.Terms(due).due, roster.days_late(ada, due)) == (due, 0)


# --- a folder, graded


def test_missing_late_and_resubmitted_work(handed_in, tmp_path):
    where = handed_in({"ada_1.py": TOO_MANY, "bob.py": RIGHT}, days=-1)
    handed_in({"ada_2.py": RIGHT, "stranger.py": RIGHT}, days=1.5)
    names = {"ada": "Ada", "bob": "Bob", "eve": "Eve"}
    out = tmp_path / "grades.csv"
    grade(listed(where, names=names), TASK, out, terms=Terms(DUE, 10), jobs=1)
    rows = rows_of(out)
    assert list(rows) == ["Ada", "Bob", "Eve", "stranger"]
    told = [(r["status"], r["score"], r["late_days"], r["attempts"]) for r in rows.values()]
    assert told == [
        ("graded", "80", "2", "2"),
        ("graded", "100", "0", "1"),
        ("missing", "0", "0", "0"),
        ("graded, not on the roster", "80", "2", "1"),
    ]
    assert (rows["Ada"]["file"], rows["Ada"]["slots"]) == ("ada_2.py", "30")
    assert rows["Eve"]["reason"] == "nothing was handed in"


def test_the_hostile_set_disturbs_nobody(handed_in, tmp_path):
    some = ("exits", "loops", "memory_bomb", "output_flood", "forks", "kills_the_grader", "empty")
    files = {f"{name}.py": HOSTILE[name][0] for name in some}
    files |= {"aa_right.py": RIGHT, "mm_right.py": RIGHT + "\n", "zz_right.py": RIGHT + "\n\n"}
    out = tmp_path / "grades.csv"
    grade(listed(handed_in(files)), TASK, out, jobs=2, feedback=tmp_path / "told")
    rows = rows_of(out)
    for name in some:
        assert rows[name]["score"] == "0"
        assert HOSTILE[name][1] in rows[name]["reason"]
        assert HOSTILE[name][1] in " ".join((tmp_path / "told" / f"{name}.txt").read_text().split())
    assert [rows[name]["score"] for name in ("aa_right", "mm_right", "zz_right")] == ["100"] * 3


def hidden_slots(seed):
    public = len(find("warmup").cases)
    hidden = Task("warmup", str(INSTRUCTOR), seed).cases()[public:]
    return {case.options["slots"] for case in hidden}


def test_a_rule_that_fails_on_one_file_does_not_cost_the_others(tmp_path, monkeypatch):
    path = tmp_path / "ada.py"
    path.write_text(RIGHT)

    def broken(self, rule, run):
        raise InputError("no such thing")

    monkeypatch.setattr(folder.Judge, "failure", broken)
    graded = folder.grade_file(str(path), TASK)
    assert graded.refused
    assert graded.reason.startswith("the grader itself failed on this file: InputError: no such")


def test_a_link_to_a_solution_is_no_submission(handed_in, tmp_path):
    where = handed_in({"ada.py": RIGHT, "bob/policy.py": RIGHT})
    (where / "eve.py").symlink_to(where / "ada.py")
    (where / "mal").symlink_to(where / "bob")
    os.mkfifo(where / "pipe.py")
    rows = grade(listed(where), TASK, tmp_path / "g.csv", jobs=1)
    assert {row["student"]: row["score"] for row in rows} == {
        "ada": "100",
        "bob": "100",
        "eve": "0",
        "mal": "0",
        "pipe": "0",
    }
    assert "is a link" in rows[2]["reason"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = " + "-" * 20_000 + "1\n" + RIGHT, "nested too deeply"),
        ("x = " + "1 + " * 20_000 + "1\n" + RIGHT, "nested too deeply"),
        ("#" * 300_000, "more than 200000 bytes"),
        ("\0", "syntax error: source code"),
        (RIGHT + "# \xe9", "is not UTF-8 text"),
    ],
)
def test_a_file_cannot_hurt_who_reads_it(text, told, tmp_path):
    path = tmp_path / "policy.py"
    path.write_bytes(text.encode("latin-1"))
    graded = folder.grade_file(str(path), TASK)
    assert told in graded.reason
    assert graded.refused


def test_no_name_and_no_text_of_a_student_stops_the_grading(handed_in, tmp_path):
    raises = doing("raise ValueError('\\ud800\\x00')")
    names = ["=cmd()", "a,b", "a;b", "A_b", "line\nbreak", "x" * 250, "0001-01-01_0000", "b\udcffd"]
    where = handed_in({f"{name}.py": raises for name in names})
    grade(listed(where), TASK, tmp_path / "g.csv", feedback=tmp_path / "told")
    rows = rows_of(tmp_path / "g.csv")
    assert len(rows) == len(names) == len(list((tmp_path / "told").iterdir()))
    assert len({f.name.casefold() for f in (tmp_path / "told").iterdir()}) == len(names)
    assert {"'=cmd()", "b\\udcffd"} < rows.keys()
    for row in rows.values():
        assert not any(text.startswith(("=", "+", "-", "@")) for text in row.values())
        assert "raised ValueError: \\ud800\\x00" in row["reason"]


def test_a_long_reason_is_cut_and_a_notebook_told(handed_in, tmp_path):
    where = handed_in({"ada.py": doing("raise ValueError('x' * 5000)"), "bob.ipynb": "{}"})
    handed_in({"eve.py": "class Policy: pass", "eve (1).ipynb": "{}"})
    names = {"ada": "Ada", "bob": "Bob", "eve": "Eve"}
    ada, bob, eve = grade(listed(where, names=names), TASK, tmp_path / "g.csv")
    assert len(ada["reason"]) == folder.MOST_REASON
    assert (bob["status"], bob["file"]) == ("refused", "bob.ipynb")
    assert "is a notebook" in bob["reason"]
    assert eve["file"] == "eve.py"


@pytest.mark.parametrize("fair", [True, False])
def test_hidden_cases_count_and_come_from_the_seed(fair, handed_in, tmp_path):
    if not INSTRUCTOR.is_dir():
        pytest.skip("this copy has no hidden tests")
    # Right in the public cases, whose slots are 4 and 1, and wrong in some that are hidden.
    text = RIGHT.replace("self.slots = slots", "self.slots = slots + (slots == 3)")
    seed = next(n for n in range(99) if (3 in hidden_slots(n)) is not fair)
    task = Task("warmup", str(INSTRUCTOR), seed, unsafe=True)
    [row] = grade(listed(handed_in({"ada.py": text})), task, tmp_path / "g.csv", jobs=1)
    assert row["score"] == ("100" if fair else "70")


def test_what_is_done_is_not_done_again(handed_in, tmp_path, monkeypatch):
    where = handed_in({"ada.py": RIGHT, "bob.py": TOO_MANY})
    out = tmp_path / "grades.csv"
    asked = []

    def one_by_one(todo, task, jobs):
        for key, path in todo.items():
            asked.append(path.name)
            yield key, Graded({"served": float(len(path.read_text()))}, False, "", "")

    monkeypatch.setattr(folder, "_side_by_side", one_by_one)
    grade(listed(where), TASK, out)
    first = out.read_bytes()
    grade(listed(where), TASK, out)
    assert (asked, out.read_bytes()) == (["ada.py", "bob.py"], first)
    (where / "bob.py").write_text(LATEST_FIRST)
    grade(listed(where), TASK, out)
    assert asked == ["ada.py", "bob.py", "bob.py"]
    grade(listed(where), TASK, out, fresh=True)
    assert asked[3:] == ["ada.py", "bob.py"]
    if INSTRUCTOR.is_dir():
        for seed in (1, 2, 1):
            grade(listed(where), Task("warmup", str(INSTRUCTOR), seed, unsafe=True), out)
        assert asked[5:] == ["ada.py", "bob.py"] * 2


def test_a_line_that_was_not_finished_is_forgotten_and_a_strange_one_refused(handed_in, tmp_path):
    out = tmp_path / "grades.csv"
    notes = tmp_path / "grades.csv.done.jsonl"
    where = handed_in({"ada.py": RIGHT})
    grade(listed(where), TASK, out, jobs=1)
    whole = notes.read_bytes()
    notes.write_bytes(whole + whole[:40])
    grade(listed(where), TASK, out, jobs=1)
    assert notes.read_bytes() == whole
    notes.write_bytes(whole + b'{"key": 1}\n')
    with pytest.raises(InputError, match="line 2: is not what a grading leaves"):
        grade(listed(where), TASK, out, jobs=1)


def test_regrading_shows_the_differences():
    rules = ["a", "b"]
    before = {
        "ada": {"student": "ada", "score": "60", "a": "40", "b": "20"},
        "bob": {"student": "bob", "score": "50", "a": "40", "b": "10"},
        "eve": {"student": "eve", "score": "9", "a": "9", "b": "0"},
    }
    now = [
        {"student": "ada", "score": "70", "a": "40", "b": "30"},
        {"student": "bob", "score": "50", "a": "40", "b": "10"},
        {"student": "zoe", "score": "1", "a": "1", "b": "0"},
    ]
    assert folder.differences(before, now, rules) == [
        "ada: 60 -> 70 (b 20 -> 30)",
        "zoe: new, 1",
        "eve: gone, was 9",
    ]


def test_a_worker_that_dies_takes_nobody_along(handed_in, tmp_path, monkeypatch):
    where = handed_in({"ada.py": RIGHT, "bob.py": RIGHT + "\n"})

    class Dying:
        def __init__(self, jobs):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *exc):
            pass

        def submit(self, fn, path, task):
            future = folder.Future()
            if path.endswith("ada.py"):
                future.set_exception(folder.BrokenProcessPool("gone"))
            else:
                future.set_result(Graded({"served": 30.0}, False, "", ""))
            return future

    monkeypatch.setattr(folder, "Processes", Dying)
    ada, bob = grade(listed(where), TASK, tmp_path / "g.csv")
    assert ada["reason"] == "the grader's worker died 3 times on this file: gone"
    assert (ada["status"], bob["status"], bob["score"]) == ("refused", "graded", "30")


def test_it_survives_being_killed_and_gives_the_same_csv(handed_in, tmp_path):
    texts = [RIGHT, TOO_MANY, LATEST_FIRST]
    where = handed_in({f"s{i:02}.py": f"{texts[i % 3]}\n# {i}\n" for i in range(8)})
    command = grader("grade", where, "--assignment", "warmup", "--unsafe", "--jobs", "2", "--out")
    quietly = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    whole, resumed = tmp_path / "whole.csv", tmp_path / "resumed.csv"
    notes = tmp_path / "resumed.csv.done.jsonl"
    started = subprocess.Popen([*command, str(resumed)], start_new_session=True, **quietly)
    try:
        while not notes.exists() or notes.read_bytes().count(b"\n") < 2:
            assert started.poll() is None
            time.sleep(0.02)
    finally:
        os.kill(started.pid, signal.SIGKILL)
        started.wait()
    assert not resumed.exists()
    time.sleep(0.5)  # its workers see that it is gone, and may finish a line
    before = notes.read_bytes().count(b"\n")
    assert before < 8
    for out in (resumed, whole):
        subprocess.run([*command, str(out)], check=True, **quietly)
    assert resumed.read_bytes() == whole.read_bytes()
    assert len(rows_of(whole)) == 8


# --- the command line


def test_the_command_grades_and_says_so(handed_in, tmp_path, capsys):
    where = handed_in({"ada.py": RIGHT, "bob.py": TOO_MANY}, days=1.5)
    names = tmp_path / "roster.csv"
    names.write_text("student,file\nAda,ada\nBob,bob\nEve,eve\n")
    out = tmp_path / "grades.csv"
    argv = ["grade", where, "--assignment", "warmup", "--out", out, "--roster", names, "--jobs", 1]
    argv += ["--due", "2026-10-01T12:00+00:00", "--late-percent", 25, "--unsafe"]
    assert cli.main([str(a) for a in argv]) == 0
    said = capsys.readouterr().out
    assert "2 graded, 1 missing, mean 42.5 of 100" in said
    assert "only the public tests were run" in said
    assert {name: row["score"] for name, row in rows_of(out).items()} == {
        "Ada": "50",
        "Bob": "35",
        "Eve": "0",
    }
    (where / "bob.py").write_text(RIGHT)
    assert cli.main([str(a) for a in argv]) == 0
    # It is written now, weeks after that date: all is lost by lateness, and the rule is won back.
    assert "Bob: 35 -> 0 (slots 0 -> 30)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--due", "soon"], "--due 'soon'"),
        (["--late-percent", "200"], "--late-percent is from 0 to 100"),
        (["--jobs", "0"], "--jobs must be 1 or more"),
        (["--roster", "none.csv"], "--roster none.csv: No such file"),
        (["--hidden", "."], "there is no hidden.py in it"),
    ],
)
def test_bad_input_is_told_in_one_sentence(more, said, handed_in, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = str(handed_in({"ada.py": RIGHT}))
    argv = ["grade", where, "--assignment", "warmup", "--out", "g.csv", "--unsafe", *more]
    assert cli.main(argv) == 2
    out, err = capsys.readouterr()
    assert said in err
    assert (out, err.count("\n")) == ("", 1)
    assert not (tmp_path / "g.csv").exists()


def test_where_nothing_is_sealed_it_asks(handed_in, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(isolation, "best", lambda: isolation.NONE)
    where = str(handed_in({"ada.py": RIGHT}))
    argv = ["grade", where, "--assignment", "warmup", "--out", str(tmp_path / "g.csv")]
    assert cli.main(argv) == 2
    assert "--unsafe" in capsys.readouterr().err
    assert not (tmp_path / "g.csv").exists()


def test_where_nothing_is_bounded_it_does_not_even_start(handed_in, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(isolation, "POSSIBLE", False)
    where = str(handed_in({"ada.py": RIGHT}))
    argv = ["grade", where, "--assignment", "warmup", "--out", str(tmp_path / "g.csv"), "--unsafe"]
    assert cli.main(argv) == 2
    assert "in WSL" in capsys.readouterr().err
    assert not (tmp_path / "g.csv").exists()


# --- hidden files


@pytest.mark.parametrize(
    ("hidden", "seed", "told"),
    [
        ("def cases(seed): return []", None, "seed.txt does not exist"),
        ("def cases(seed): return []", "x", "must hold a whole number"),
        ("", "1", "there is no function cases"),
        ("def cases(seed): return [3]", "1", "3 is no case named after a public one"),
        (
            "from servesim.grade import Case\ndef cases(seed): return [Case('odd#1', ())]",
            "1",
            "'odd#1' is no case named after",
        ),
        (
            "from servesim.grade import Case\ndef cases(seed): return [Case('busy#1', ())] * 2",
            "1",
            "two cases are called 'busy#1'",
        ),
    ],
)
def test_bad_hidden_files_are_refused(tmp_path, hidden, seed, told):
    (tmp_path / "hidden.py").write_text(hidden)
    if seed is not None:
        (tmp_path / "seed.txt").write_text(seed)
    with pytest.raises(InputError, match=told):
        Task("warmup", str(tmp_path)).cases()
