"""The grader's command line: ``python -m servesim.grade COMMAND``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from .. import __version__
from ..errors import InputError
from ..output import check_writable, write_whole
from . import report
from .assignments import NAMES, find
from .checking import Report, counterexample, first_answer, where
from .judge import Judge

ALL_RIGHT, LOST, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


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
    check.set_defaults(run=_check)
    return top


def _assignment(p: argparse.ArgumentParser) -> None:
    p.add_argument("--assignment", required=True, metavar="NAME", help=", ".join(NAMES))


def _check(args: argparse.Namespace) -> int:
    assignment = find(args.assignment)
    if args.html:
        check_writable(args.html, "--html")
    judge = Judge(assignment)
    score, make = first_answer(judge, args.file)
    if not args.json:
        print(report.score_text(score, args.file, where(score)), flush=True)
    example = None if make is None else counterexample(judge, score, make)
    if args.json:
        print(report.as_json(score, args.file, example))
    elif example is not None:
        print("\n" + report.counterexample_text(example))
    if args.html:
        whole = Report(args.file, score, example, where(score))
        page = report.html_page(whole.score, whole.file, whole.where, example)
        write_whole(Path(args.html), page)
    return ALL_RIGHT if score.full else LOST


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; return its exit status.

    Returns
    -------
    int
        0 if all went well, 1 if points were lost, 2 for bad input, 130 for Ctrl-C.
    """
    try:
        args = parser().parse_args(argv)
        status: int = args.run(args)
        return status
    except InputError as error:
        return _fail(str(error), BAD_INPUT)
    except KeyboardInterrupt as stop:
        return _fail(" ".join(["interrupted", *getattr(stop, "__notes__", [])]), INTERRUPTED)


def _fail(message: str, status: int) -> int:
    print(f"servesim.grade: {message}", file=sys.stderr)
    return status
