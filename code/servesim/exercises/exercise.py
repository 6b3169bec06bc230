"""What every exercise is: a task with a picture, numbers asked for, and how it goes in truth."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from .. import svg
from ..checks import list_of, seed_number, text
from ..errors import InputError
from ..lives import lives as lives_of
from ..metrics import Result
from ..request import NS_PER_MS, Request

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ask:
    """A number that the reader is asked for.

    Attributes
    ----------
    label : str
        What it is; the same for every seed.
    unit : str
        Empty for what has none, as the number of a step.
    answer : float
        In that unit, from a run of the engine.
    tolerance : float
        How far from it an answer still counts, in the unit.
    """

    label: str
    unit: str
    answer: float
    tolerance: float = 0.05

    def told(self) -> str:
        """Return the answer with its unit."""
        return f"{self.answer:.10g} {self.unit}".strip()

    @property
    def name(self) -> str:
        """What it is, with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label

    def check(self, given: str) -> Verdict:
        """Judge what a reader wrote."""
        text(given=given)
        if not given.strip():
            return Verdict(False, "No number yet.")
        try:
            value = float(given)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            return Verdict(False, "Write a number.")
        if abs(value - self.answer) <= self.tolerance + 1e-9:
            return Verdict(True, f"Right: {self.told()}.")
        return Verdict(False, f"Not right: too {'low' if value < self.answer else 'high'}.")


class Verdict(NamedTuple):
    """Whether a number is right (None if the reader gave none), and what to say about it."""

    right: bool | None
    says: str


@dataclass(frozen=True, repr=False)
class Exercise(svg.Figure):
    """A task: the figure shows what is given, its summary says what to do.

    Attributes
    ----------
    asks : tuple of Ask
        The numbers asked for.
    worked : svg.Figure
        How it goes, drawn from the run that gave the answers.
    """

    asks: tuple[Ask, ...] = ()
    worked: svg.Figure = svg.Figure("")  # noqa: RUF009  # it never changes

    @classmethod
    def of(cls, given: svg.Figure, asks: Iterable[Ask], worked: svg.Figure) -> Exercise:
        """Return an exercise: the figure of what is given, what is asked, and how it goes."""
        return cls(**vars(given), asks=tuple(asks), worked=worked)

    def with_id(self, id: str) -> Exercise:
        """Return the same exercise under another id."""
        again = super().with_id(id)
        assert isinstance(again, Exercise)
        # Only one of the two is on a page at a time.
        return replace(again, worked=self.worked.with_id(id))

    def numbers_html(self) -> str:
        """Return the task and, open, the table of what is given."""
        parts = [svg.element("p", svg.esc(self.summary), class_="live-summary")]
        if self.table is not None:
            parts.append(
                svg.element(
                    "div",
                    self.table.to_html(),
                    class_="live-table",
                    tabindex="0",
                    role="region",
                    aria_label=f"Given: {self.title}",
                    style="overflow-x:auto",
                )
            )
        return "\n".join(parts)

    def to_html(self) -> str:
        """Return task, table and picture."""
        return f"{self.numbers_html()}\n{self.picture_html()}"

    def to_text(self) -> str:
        """Return task, table and questions as plain text."""
        asked = "\n".join(f"{ask.name}?" for ask in self.asks)
        return f"{super().to_text()}\n\n{asked}"

    def reply(self, given: Sequence[str] | None) -> dict[str, Any]:
        """Judge a reader's numbers, or show the answers.

        Parameters
        ----------
        given : sequence of str or None
            What stands in each field, in the order of `asks`. None: show the answers.

        Returns
        -------
        dict
            ``right`` (true or false, null where answers are shown) and ``says``, a list each;
            ``status``, a sentence; and once all are right, or shown: ``picture`` and ``worked``,
            the markup of how it goes.
        """
        if given is not None:
            given = list_of(str, "given", given)
        if given is None:
            verdicts = [Verdict(None, f"{ask.told()}.") for ask in self.asks]
            status = "These are the answers. The picture above shows how it goes."
        elif len(given) != len(self.asks):
            raise InputError(f"exercise: it asks for {len(self.asks)} numbers, not {len(given)}")
        else:
            verdicts = [ask.check(text) for ask, text in zip(self.asks, given, strict=True)]
            right = sum(bool(v.right) for v in verdicts)
            status = f"{right} of {len(verdicts)} right. Try again, or show the answers."
            if right == len(verdicts):
                status = "All right. The picture above shows how it goes."
        reply: dict[str, Any] = {
            "right": [v.right for v in verdicts],
            "says": [v.says for v in verdicts],
            "status": status,
        }
        if False not in reply["right"]:
            reply |= {
                "picture": self.worked.picture_html(),
                "worked": self.worked.numbers_html(),
            }
        return reply


# ------------------------------------------------------------------------ to make one


def drawn(seed: int, make: Callable[[random.Random], T], good: Callable[[T], bool]) -> T:
    """Return the first of a seed's cases that is worth working out.

    Raises
    ------
    InputError
        If the seed is not a whole number.
    """
    seed_number(**{"exercise: the seed": seed})
    rng = random.Random(seed)
    while not good(case := make(rng)):
        pass
    return case


def request(id: int, arrival_ms: int, prompt_len: int, output_len: int) -> Request:
    """Return a request with its arrival in whole milliseconds."""
    return Request(id, arrival_ms * NS_PER_MS, prompt_len, output_len)


def ms(ns: int) -> float:
    """Return milliseconds."""
    return ns / NS_PER_MS


def off_the_steps(requests: Sequence[Request], *runs: Result) -> bool:
    """Tell whether nobody arrives just when a step ends: too fine a point for an exercise."""
    ends = {step.end_ns for run in runs for step in run.step_records}
    return not ends & {r.arrival_ns for r in requests}


def arrivals(requests: Sequence[Request], title: str = "Who arrives when") -> svg.Timeline:
    """Return a picture of the arrivals alone."""
    timeline = svg.Timeline(title=title, width=480)
    for r in requests:
        timeline.row(f"r{r.id}", [], arrival=r.arrival_ms)
    return timeline


def lives(run: Result, title: str = "", *, unit: str = "ms", label: str = "") -> svg.Timeline:
    """Return who waited, had its prompt processed and decoded when."""
    timeline = svg.Timeline(unit=unit, title=title, label=label, width=480)
    lived = lives_of(run)
    for r in run.records:
        first = None if r.first_token_ns is None else ms(r.first_token_ns)
        row = f"r{r.request.id}", lived[r.request.id]
        timeline.row(*row, arrival=r.request.arrival_ms, first_token=first)
    return timeline


def steps(**runs: Result) -> tuple[list[str], list[list[svg.Cell]]]:
    """Return the table of the steps of one or more runs: who does what in each."""
    ids = sorted({r.request.id for run in runs.values() for r in run.records})
    rows: list[list[svg.Cell]] = []
    for name, run in runs.items():
        for step in run.step_records:
            does = {s.id: "decode" if s.decode else f"prefill {s.tokens}" for s in step.scheduled}
            does |= {i: "waits" for i in step.waiting if i not in does}
            does |= dict.fromkeys(step.preempted, "thrown out")
            times = [ms(step.start_ns), ms(step.end_ns)]
            rows.append([f"{name} {step.index}", *times, *(does.get(i, "") for i in ids)])
    return ["step", "starts (ms)", "ends (ms)", *(f"r{i}" for i in ids)], rows
