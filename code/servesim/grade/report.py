"""What a student is told: marks, the next hint, and a small workload that fails."""

from __future__ import annotations

import html
import json
import os
import textwrap
from dataclasses import dataclass

from .. import svg
from ..lives import lives
from ..request import NS_PER_MS
from ..table import text_table
from ..trace import StepRecord
from .assignment import Case, Run
from .judge import Mark, Score
from .shrink import Shrunk

WIDTH = 92
COLUMNS = 60
"""Steps that a timeline in the terminal shows."""

STEPS = 40
"""Steps of a run that a page shows, each with its picture."""

SIGNS = "P prefill  d decode  . waits  - in the batch, no tokens  x thrown out"


@dataclass(frozen=True)
class Counterexample:
    """A small workload that breaks a rule, run by the student and by the reference.

    Attributes
    ----------
    mark : Mark
        The rule.
    shrunk : Shrunk
    requests : int
        How many the case had before.
    yours, reference : Run
    """

    mark: Mark
    shrunk: Shrunk
    requests: int
    yours: Run
    reference: Run


def number(points: float) -> str:
    """Return points as they are printed: 20, 12.5."""
    return f"{points:.2f}".rstrip("0").rstrip(".")


def score_text(score: Score, file: str, where: str) -> str:
    """Return the marks, rule by rule, and the sum."""
    a = score.assignment
    lines = [f"{a.title} ({a.name}): {file}", ""]
    if score.refused:
        lines += _filled(score.refused, "  ")
        lines += ["", f"score: 0 of {number(a.points)}"]
        return "\n".join(lines)
    name = max(len(mark.rule.name) for mark in score.marks)
    told: str | None = None
    for mark in score.marks:
        state = "ok  " if mark.full else "part" if mark.points else "LOST"
        points = f"{number(mark.points):>5} of {number(mark.rule.points):<3}"
        head = f"  {state}  {mark.rule.name:<{name}}  {points}  "
        lines += textwrap.wrap(
            mark.rule.demand, WIDTH, initial_indent=head, subsequent_indent=" " * len(head)
        )
        if mark.failure and str(mark.failure) != told:  # a run that broke off loses several
            told = str(mark.failure)
            lines += _filled(_as_named(told, file), " " * 8)
            lines += [" " * 8 + line for line in _as_named(mark.failure.trace, file).splitlines()]
        elif mark.failure:
            lines.append(" " * 8 + "the same failure")
        if mark.note:
            lines += [line for part in mark.note.split("; ") for line in _filled(part, " " * 8)]
    lines += ["", f"score: {number(score.points)} of {number(a.points)} ({where})"]
    if not score.full:
        lines += _filled(f"next: {score.hint}", "")
    return "\n".join(lines)


def _as_named(text: str, file: str) -> str:
    """Call a file as the student did: its whole path says nothing, and is longer."""
    return text.replace(os.path.abspath(file), file)


def counterexample_text(c: Counterexample) -> str:
    """Return the small workload, what goes wrong in it, and who ran when."""
    small = c.shrunk.case
    lines = [
        f"The smallest workload found that still breaks {c.mark.rule.name!r}: "
        f"{len(small.requests)} of the {c.requests} requests of case {small.name}",
        f"({c.shrunk.runs} runs tried).",
        "",
        *(f"  {line}" for line in text_table(_table(small))),
        *_filled(_server(small), "  "),
        "",
        *_filled(str(c.shrunk.failure), ""),
    ]
    step = c.shrunk.failure.step
    start = c.yours.steps[_first_shown(c.yours, step)].index if c.yours.steps else 0
    lines += ["", "yours:", *(f"  {line}" for line in timeline(c.yours, step))]
    beside = timeline(c.reference, start=start)  # the same steps
    lines += ["", f"{_named(c.reference)}:", *(f"  {line}" for line in beside)]
    lines += ["", f"  {SIGNS}"]
    return "\n".join(lines)


def _named(reference: Run) -> str:
    return f"the reference's ({reference.result.policy})"


def _table(case: Case) -> list[list[str]]:
    rows = [["request", "arrives ms", "prompt", "output"]]
    more = [name for name in ("priority", "tenant") if any(getattr(r, name) for r in case.requests)]
    rows[0] += more
    for r in case.requests:
        cells = [f"r{r.id}", f"{r.arrival_ms:g}", str(r.prompt_len), str(r.output_len)]
        rows.append(cells + [str(getattr(r, name)) for name in more])
    return rows


def _server(case: Case) -> str:
    facts = [f"{name}={value!r}" for name, value in case.options.items()]
    if case.kv.blocks is not None:
        facts.append(f"KV cache of {case.kv.blocks} blocks of {case.kv.block_size} tokens")
    return ", ".join(facts)


def timeline(run: Run, mark: int | None = None, start: int | None = None) -> list[str]:
    """Return who ran in which step, one column per step and one line per request that is there.

    Parameters
    ----------
    run : Run
    mark : int, optional
        Index of a step to point at; of a long run the steps around it are shown.
    start : int, optional
        Index of the first step to show, if the run has come to it.
    """
    steps = run.steps
    if not steps:
        return ["no step was taken"]
    last, first = _marked(run, mark), _first_shown(run, mark)
    at = len(steps) if last is None else last
    if start is not None:
        first = next((i for i, s in enumerate(steps) if s.index >= start), first)
    shown = steps[first : first + COLUMNS]
    label = max(len("step"), *(len(f"r{r.id}") for r in run.case.requests))
    ruler = {s.index: str(s.index) for s in shown[::10]}
    clock = {s.index: f"{s.start_ns / NS_PER_MS:.0f}" for s in shown[::10]}
    lines = []
    for name, texts in (("step", ruler), ("ms", clock)):
        line = "".join(texts.get(s.index, "").ljust(10) for s in shown[::10])
        lines.append(f"{name:>{label}} {line.rstrip()}")
    for r in run.case.requests:
        if line := "".join(_sign(r.id, s) for s in shown).rstrip():
            lines.append(f"{f'r{r.id}':>{label}} {line}")
    if last is not None or (mark is not None and run.stopped and first + len(shown) == len(steps)):
        lines.append(" " * (label + 1 + at - first) + "^")
    return lines


def _marked(run: Run, mark: int | None) -> int | None:
    """Return at which place among the steps the one to point at is, if the run came to it."""
    if mark is None:
        return None
    return next((i for i, s in enumerate(run.steps) if s.index >= mark), None)


def _first_shown(run: Run, mark: int | None) -> int:
    """Return the place of the first step that a timeline shows."""
    last, steps = _marked(run, mark), len(run.steps)
    at = steps if last is None else last
    return max(0, min(at - COLUMNS * 2 // 3, steps - COLUMNS))


def _sign(rid: int, step: StepRecord) -> str:
    if rid in step.preempted:
        return "x"
    for s in step.scheduled:
        if s.id == rid:
            return "d" if s.decode else "P"
    return "-" if rid in step.running else "." if rid in step.waiting else " "


def _filled(text: str, indent: str) -> list[str]:
    """Wrap prose."""
    return textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False
    )


# -- HTML ---------------------------------------------------------------------------------------

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
h1, h2 { overflow-wrap: anywhere }
pre { overflow-x: auto; font-size: 14px }
figure { margin: 1rem 0; overflow-x: auto }
"""


def html_page(score: Score, file: str, where: str, c: Counterexample | None) -> str:
    """Return the whole report as one file."""
    title = html.escape(f"{score.assignment.title}: {file}")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n{html_part(score, file, where, c)}</body></html>\n"
    )


def html_part(score: Score, file: str, where: str, c: Counterexample | None) -> str:
    """Return the report as a part of a page."""
    parts = [f"<pre>{html.escape(score_text(score, file, where))}</pre>"]
    if c is not None:
        parts.append(f"<pre>{html.escape(counterexample_text(c))}</pre>")
        for name, run in (("yours", c.yours), (_named(c.reference), c.reference)):
            parts.append(f"<h2>{html.escape(name[0].upper() + name[1:])}</h2>")
            id = "yours" if run is c.yours else "reference"
            parts.append(picture(run, id).to_html())
            parts += steps_html(run, id, c.shrunk.failure.step)
    return "\n".join(parts)


def picture(run: Run, id: str) -> svg.Figure:
    """Draw who ran when."""
    rows = svg.Timeline(unit="ms")
    lived = lives(run.result) if run.steps else {}
    for r in run.case.requests:
        rows.row(f"r{r.id}", lived.get(r.id, []), arrival=r.arrival_ms)
    told = str(run.stopped) if run.stopped else f"{run.result.steps} steps in all."
    return svg.figure(id, rows, title="Who ran when", summary=told)


def steps_html(run: Run, id: str, mark: int | None) -> list[str]:
    """Return the steps of a run as they look in the stepper, to be opened one at a time."""
    from ..figs.stepper import draw  # takes long to load, and is seldom asked for
    from ..story import Story

    if not run.steps:
        return []
    story, parts = Story(run.result), []
    at = next((i for i, s in enumerate(run.steps) if s.index == mark), len(run.steps) - 1)
    first = max(0, min(at - STEPS // 2, len(run.steps) - STEPS))
    for i in range(first, min(first + STEPS, len(run.steps))):
        figure = draw(story, i).with_id(f"{id}-{i}")
        parts.append(
            f'<details name="{id}"{" open" * (i == at)}>'
            f"<summary>{html.escape(figure.summary)}</summary>{figure.picture_html()}</details>"
        )
    return parts


def as_json(score: Score, file: str, c: Counterexample | None = None) -> str:
    """Return the score as JSON."""
    data = {
        "assignment": score.assignment.name,
        "file": file,
        "points": score.points,
        "of": score.assignment.points,
        "refused": score.refused or None,
        "runs": score.runs,
        "hint": score.hint or None,
        "rules": [
            {
                "rule": mark.rule.name,
                "points": mark.points,
                "of": mark.rule.points,
                "demand": mark.rule.demand,
                "failure": None if mark.failure is None else str(mark.failure),
                "note": mark.note or None,
            }
            for mark in score.marks
        ],
    }
    if c is not None:
        requests = [
            {name: getattr(r, name) for name in r.__dataclass_fields__}
            for r in c.shrunk.case.requests
        ]
        data["counterexample"] = {
            "rule": c.mark.rule.name,
            "case": c.shrunk.case.name,
            "requests": requests,
            "failure": str(c.shrunk.failure),
            "step": c.shrunk.failure.step,
            "request": c.shrunk.failure.request,
            "runs": c.shrunk.runs,
        }
    return json.dumps(data, indent=2)
