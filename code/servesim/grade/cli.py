"""The grader's command line: ``python -m servesim.grade COMMAND``."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, NoReturn

from .. import __version__
from ..checks import file_name
from ..errors import InputError
from ..output import begin, check_writable, complain, say, write_whole
from . import report
from .assignments import NAMES, find
from .checking import counterexample, first_answer, where
from .judge import Judge, refused
from .source import read

if TYPE_CHECKING:
    from . import folder

ALL_RIGHT, LOST, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


GRADE_HELP = """\
A file belongs to the student whose name (or `file` in the roster) it begins with; of several the
latest counts, by the time in its name (2026-10-01T23-59) or the time it was written. What is done
is kept in FILE.done.jsonl: after an interruption the same command goes on, and after a change it
grades again what depends on it, and says whose score differs from the FILE that was there.
"""


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one sentence."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message} (see {self.prog} --help)")


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    top = _Parser(
        prog="python -m servesim.grade",
        description="Check a policy written for an assignment, or grade a folder of them.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"servesim {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, does: str, **kwargs: Any) -> argparse.ArgumentParser:
        return commands.add_parser(
            name,
            help=does,
            description=does[0].upper() + does[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **kwargs,
        )

    check = command("check", "run the public tests on your file, and say what to look at next")
    check.add_argument("file", metavar="FILE", help="your policy, a Python file")
    _assignment(check)
    check.add_argument("--html", metavar="FILE", help="write the report as a page, with pictures")
    check.add_argument("--json", action="store_true", help="print JSON")
    check.add_argument(
        "--isolated",
        action="store_true",
        help="run it as it will be graded, in a process of its own, within its limits",
    )
    check.set_defaults(run=_check)

    release = command("release", "write the students' copy of this repository, without solutions")
    release.add_argument("folder", metavar="DIR", help="a new folder")
    release.set_defaults(run=_release)

    grade = command("grade", "grade a folder of submissions", epilog=GRADE_HELP)
    grade.add_argument("folder", metavar="DIR", help="files, or folders with a policy.py each")
    _assignment(grade)
    grade.add_argument("--out", required=True, metavar="FILE", help="the grades, as CSV")
    _hidden(grade)
    grade.add_argument(
        "--roster",
        metavar="FILE",
        help="CSV with columns student and file (what a name begins with)",
    )
    grade.add_argument("--due", metavar="TIME", help="as 2026-10-01T23:59; later ones are late")
    grade.add_argument(
        "--late-percent",
        type=float,
        default=0.0,
        metavar="P",
        help="percent of the points that each day begun costs (default 0)",
    )
    grade.add_argument("--jobs", type=int, metavar="N", help="processes (default: one per core)")
    grade.add_argument("--feedback", metavar="DIR", help="write a report for each student")
    grade.add_argument("--fresh", action="store_true", help="grade all of them again")
    _unsafe(grade)
    grade.set_defaults(run=_grade)

    results = command("results", "grade one submission, in Gradescope's format")
    results.add_argument("submission", metavar="DIR", help="the folder of a submission, or a file")
    _assignment(results)
    results.add_argument("--out", required=True, metavar="FILE", help="results.json")
    _hidden(results)
    _unsafe(results)
    results.set_defaults(run=_results)

    scope = command("gradescope", "write an autograder for Gradescope, ready to be uploaded")
    scope.add_argument(
        "out", metavar="FILE", help="a name that ends in .zip, or a folder for autograder.zip"
    )
    _assignment(scope)
    _hidden(scope)
    scope.set_defaults(run=_gradescope)
    return top


def _hidden(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--hidden", metavar="DIR", help="folder with hidden.py and seed.txt, such as instructor"
    )
    p.add_argument("--seed", type=int, metavar="N", help="in place of the one in seed.txt")


def _unsafe(p: argparse.ArgumentParser) -> None:
    p.add_argument(
        "--unsafe",
        action="store_true",
        help="go on where no process can be sealed: time, memory and output are bounded there, "
        "but a policy could use the network, read your files and write some",
    )


def _assignment(p: argparse.ArgumentParser) -> None:
    p.add_argument("--assignment", required=True, metavar="NAME", help=", ".join(NAMES))


def _check(args: argparse.Namespace) -> int:
    assignment = find(args.assignment)
    if args.html is not None:
        check_writable(args.html, "--html", [args.file])
    judge = Judge(assignment)
    if args.isolated:
        return _check_isolated(args, judge)
    score, make = first_answer(judge, args.file)
    if not args.json:
        say(report.score_text(score, args.file, where(score)))
    example = None if make is None else counterexample(judge, score, make)
    if args.json:
        say(report.as_json(score, args.file, example))
    elif example is not None:
        say("\n" + report.counterexample_text(example))
    if args.html is not None:
        page = report.html_page(score, args.file, where(score), example)
        write_whole(Path(args.html), page)
    return ALL_RIGHT if score.full else LOST


def _check_isolated(args: argparse.Namespace, judge: Judge) -> int:
    from . import folder

    task = folder.Task(args.assignment, unsafe=True)
    score, printed, _ = folder.score(args.file, judge, task, read)
    apart = f"public tests, {score.runs} simulated runs; kept apart by {folder.way(True).name}"
    if printed:
        say(printed.decode("utf-8", "replace"), end="")
    if args.json:
        say(report.as_json(score, args.file))
    else:
        say(report.score_text(score, args.file, apart))
    if args.html is not None:
        write_whole(Path(args.html), report.html_page(score, args.file, apart, None))
    return ALL_RIGHT if score.full else LOST


def _release(args: argparse.Namespace) -> int:
    from .release import release

    files = release(args.folder)
    say(f"{args.folder}: {len(files)} files, {len(NAMES)} assignments, no solutions")
    return ALL_RIGHT


def _grade(args: argparse.Namespace) -> int:
    from . import folder, roster

    assignment = find(args.assignment)
    if not 0 <= args.late_percent <= 100:
        raise InputError(f"--late-percent is from 0 to 100, not {args.late_percent:g}")
    due = None if args.due is None else roster.moment(args.due)
    listed = None if args.roster is None else roster.read_roster(args.roster)
    check_writable(args.out, "--out", [args.roster])
    students = roster.entries(roster.submissions(args.folder), listed)
    task = _task(args)
    before = folder.read_csv(args.out)
    rows = folder.grade(
        students,
        task,
        args.out,
        terms=folder.Terms(due, args.late_percent),
        jobs=args.jobs,
        fresh=args.fresh,
        feedback=args.feedback,
    )
    rules = [rule.name for rule in assignment.rules]
    if before:
        changes = folder.differences(before, rows, rules)
        say("\n".join(changes or ["no score has changed"]))
    counts = Counter(row["status"] for row in rows)
    handed_in = [float(row["score"]) for row in rows if row["status"] != "missing"]
    mean = f", mean {fmean(handed_in):.1f} of {report.number(assignment.points)}" * bool(handed_in)
    apart = folder.way(args.unsafe)
    say(f"{args.out}: {', '.join(f'{n} {status}' for status, n in sorted(counts.items()))}{mean}")
    say(f"policies were kept apart by {apart.name}", end="")
    say("" if apart.sealed else "; the network and your files were not out of their reach")
    if task.hidden is None:
        say("only the public tests were run; name the hidden ones with --hidden DIR")
    return ALL_RIGHT


def _task(args: argparse.Namespace) -> folder.Task:
    """Return how to grade; a seed alone means this repository's own hidden cases."""
    from . import folder, release

    find(args.assignment)
    hidden = args.hidden
    if hidden is None and args.seed is not None:
        own = Path(__file__).resolve().parents[3] / release.SECRET
        if not own.is_dir():
            raise InputError("--seed needs --hidden DIR: the hidden cases are made from it")
        hidden = str(own)
    return folder.Task(args.assignment, hidden, args.seed, args.unsafe)


def _results(args: argparse.Namespace) -> int:
    from . import folder, gradescope

    path, printed = gradescope.submitted(args.submission), b""
    check_writable(args.out, "--out", [path])
    task = _task(args)
    judge = Judge(find(args.assignment), task.cases())
    folder.way(args.unsafe)
    if path is None:
        score = refused(judge.assignment, "there is no Python file in the submission")
    else:
        score, printed, _ = folder.score(path, judge, task)
    if task.hidden is not None:
        printed = b""  # a policy can print what it sees, and students see this
    write_whole(Path(args.out), gradescope.as_json(gradescope.results(score, printed)))
    return ALL_RIGHT


def _gradescope(args: argparse.Namespace) -> int:
    from . import gradescope

    args.unsafe = True  # nothing is run here
    task = _task(args)
    task.cases()
    file_name(**{"output FILE": args.out})
    out = Path(args.out)
    if out.suffix != ".zip":
        out = out / "autograder.zip"
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"output {args.out}: {error.strerror or error}") from None
    check_writable(out, "output")
    write_whole(out, gradescope.autograder(find(args.assignment), task.hidden, args.seed))
    say(f"{out}: an autograder for {args.assignment}; upload it as it is")
    return ALL_RIGHT


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status.

    Returns
    -------
    int
        0 if all went well, 1 if points were lost, 2 for bad input, 130 for Ctrl-C.
    """
    try:
        begin()
        args = parser().parse_args(argv)
        status: int = args.run(args)
        return status
    except InputError as error:
        return _fail(str(error), BAD_INPUT)
    except MemoryError:
        return _fail("there is not enough memory for so much; ask for less", BAD_INPUT)
    except KeyboardInterrupt as stop:
        return _fail(" ".join(["interrupted", *getattr(stop, "__notes__", [])]), INTERRUPTED)


def _fail(message: str, status: int) -> int:
    complain(f"servesim.grade: {message}")
    return status
