"""The stepper: one step of a run, as a debugger would show it.

From top to bottom: where the step lies in the run, who waits, who is in the batch and what each
got, how the step's tokens are shared, who holds the KV blocks. Each request keeps its color and
hatch from top to bottom and from step to step, and nothing moves that did not change.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from .. import cost, svg
from ..engine import SupportsPlan, simulate
from ..kv import KVCache
from ..policies import BUILT_IN
from ..request import Request
from ..spec import build, choose
from ..story import Moment, Part, Story, ms, table
from ..svg.canvas import Canvas, text_width, tooltip
from ..svg.look import KINDS, Style, paint, style
from ..svg.panel import Frame, Panel

WIDTH = 460  # so that text is not too small on a phone
_ROW = 25.0
_MOST_ROWS = {"queue": 5, "batch": 8}
_MARK = 16.0  # the sign of a request
_BAR = 70.0
_DOT, _MOST_DOTS = 9.0, 6


def stepper(runs: str, run: str, step: int = 0) -> svg.Figure:
    """Draw one step of a run that is described by a text.

    Parameters
    ----------
    runs : str
        JSON, as `servesim.stepper.stepper` writes it. By label: ``requests`` (id, arrival in ns,
        prompt and output tokens, priority, tenant), ``policy`` and ``cost`` (name and options),
        ``kv``, and ``options`` of `simulate`.
    run : str
        The label of one of them.
    step : int
        Which step, from 0; the last one if the run is shorter.

    Raises
    ------
    InputError
        If the text describes no run, or there is no such label.
    """
    return draw(_story(runs, run), step)


@lru_cache(maxsize=16)
def _story(runs: str, run: str) -> Story:
    """Run it; looking at another step runs nothing again."""
    told: dict[str, Any] = choose("run", run, json.loads(runs))
    name, options = told["policy"]
    kind, numbers = told["cost"]
    made: SupportsPlan = build(choose("policy", name, BUILT_IN), options, f"policy {name!r}")
    result = simulate(
        [Request(*row) for row in told["requests"]],
        made,
        cost=choose("cost", kind, PRICES)(**numbers),
        kv=KVCache(**told["kv"]),
        record_steps=True,
        **told["options"],
    )
    return Story(result)


PRICES: dict[str, type[Any]] = {"affine": cost.Affine, "roofline": cost.Roofline}
"""Price lists that a text can describe."""


def draw(story: Story, step: int) -> svg.Figure:
    """Draw one step of a recorded run.

    Parameters
    ----------
    story : Story
    step : int
        Which record, from 0; the last one if there are fewer.

    Raises
    ------
    InputError
        If it is below zero.
    """
    now = story.moment(step)
    looks = {rid: style(1 + i) for i, rid in enumerate(story.prompts)}
    panels = [
        Clock(story, now),
        Rows(story, [*now.queue, *now.away], "queue", looks),
        Rows(story, now.batch, "batch", looks),
        Tokens(story, now, looks),
        Memory(story, now, looks),
    ]
    return svg.figure(
        "stepper",
        *panels,
        title=f"Step {now.step.index} of {story.result.policy}",
        summary=now.sentence(),
        table=table(story, now.number),
        width=WIDTH,
        limits={"step": now.last},
    )


class _Full(Panel):
    """A panel that uses the whole width."""

    def margins(self, width: float, size: float) -> tuple[float, float]:
        """Return nothing: there are no axes."""
        return 0.0, 0.0

    def head(self, canvas: Canvas, text: str, more: str = "", right: float = 0) -> float:
        """Write a heading, what belongs to it, and return the height used."""
        size = canvas.size
        canvas.text(0, size, text, bold=True)
        if more:
            canvas.text(right, size, more, anchor="end", color="muted")
        return size * 1.55


class Clock(_Full):
    """Where the step lies in the run: a strip of all steps, each as wide as it is long."""

    def __init__(self, story: Story, now: Moment) -> None:
        self.story, self.now = story, now

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw the strip and return its height, in px."""
        now, steps, size = self.now, self.story.steps, canvas.size
        top = self.head(
            canvas,
            f"Step {now.step.index} of {steps[-1].index}",
            f"at {ms(now.step.start_ns)}, lasts {ms(now.step.cost_ns)}",
            frame.width,
        )
        top += 9  # the signs stand here
        first, last = steps[0].start_ns, max(steps[-1].end_ns, steps[0].start_ns + 1)
        inner = frame.width - 2

        def x(ns: int) -> float:
            return 1 + inner * (ns - first) / (last - first)

        canvas.line(0, top + 7, frame.width, top + 7, "axis")
        kinds = ((bool(s.work.prefill_tokens), bool(s.scheduled), s) for s in steps)
        for (prefill, busy), group in groupby(kinds, key=lambda k: k[:2]):
            some = [s for *_, s in group]
            look = Style("axis", "diagonal") if prefill else Style("axis", hollow=not busy)
            kind = "with prefill" if prefill else "only decodes" if busy else "empty"
            for a, b in _stretches(some):
                text = f"step {a.index}" if a is b else f"steps {a.index} to {b.index}"
                width = x(b.end_ns) - x(a.start_ns)
                gap = 1 if width > 4 else 0
                canvas.block(x(a.start_ns), top, width - gap, 14, look, f"{text}: {kind}")
        for s in steps:
            if s.preempted:
                text = f"step {s.index}: somebody is thrown out"
                canvas.marker(x(s.start_ns), top - 6, KINDS["preempted"], 4, text)
        a, b = x(now.step.start_ns), x(now.step.end_ns)
        canvas.put(
            "rect",
            x=a - 1,
            y=top - 3,
            width=max(b - a, 2) + 2,
            height=20,
            fill=paint("ink"),
            fill_opacity=0.12,
            stroke=paint("ink"),
            stroke_width=2.5,
            rx=2,
        )
        base = top + 20 + size * 0.85
        begin, end = ms(first), ms(steps[-1].end_ns)
        canvas.text(0, base, begin, color="muted")
        canvas.text(frame.width, base, end, anchor="end", color="muted")
        hatch = "hatched: a step with prefill"
        if any(s.preempted for s in steps):
            hatch = "hatched: prefill; \N{BLACK DIAMOND} thrown out"
        middle = (text_width(begin, size) + frame.width - text_width(end, size)) / 2
        canvas.text(middle, base, hatch, anchor="middle", color="muted")
        return base + 2


def _stretches(steps: Sequence[Any]) -> Iterable[tuple[Any, Any]]:
    """Yield the steps one by one if they are few, else first and last of each stretch."""
    if len(steps) <= 40:
        yield from ((s, s) for s in steps)
        return
    begin = previous = steps[0]
    for s in steps[1:]:
        if s.start_ns > previous.end_ns:
            yield begin, previous
            begin = s
        previous = s
    yield begin, previous


class Rows(_Full):
    """Requests, one a row: progress, tokens made, and what was decided."""

    def __init__(
        self, story: Story, parts: list[Part], place: str, looks: dict[int, Style]
    ) -> None:
        self.parts, self.looks, self.place = parts, looks, place
        queue = place == "queue"
        ids = [[*s.waiting, *s.rejected] if queue else s.running for s in story.steps]
        # As many rows as the fullest step needs, so that stepping moves nothing up and down.
        self.rows = max(1, min(_MOST_ROWS[place], max(map(len, ids))))
        # Whoever was thrown out waits with what it had produced.
        back = {rid for s in story.steps for rid in s.preempted}
        most = max(
            r.request.prompt_len + (r.output_tokens if r.request.id in back else 0)
            for r in story.result.records
        )
        self.tokens = text_width(f"{most} tokens", svg.look.TEXT)
        self.name = max(28.0, *(text_width(f"r{rid}", svg.look.TEXT) for rid in story.prompts))

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw the rows and return their height, in px."""
        n = len(self.parts)
        if self.place == "queue":
            text, more = f"Waiting: {n}", "head of the queue first" if n > 1 else ""
        else:
            text, more = f"In the batch: {n}", ""
        top = self.head(canvas, text, more, frame.width)
        shown = self.parts if n <= self.rows else self.parts[: self.rows - 1]
        for i, part in enumerate(shown):
            self._row(canvas, part, top + _ROW * (i + 0.5), frame.width)
        if n > len(shown):
            rest = f"and {n - len(shown)} more"
            canvas.text(_MARK + 7, top + _ROW * (self.rows - 0.5) + 5, rest, color="muted")
        if not n:
            canvas.text(_MARK + 7, top + _ROW * 0.5 + 5, "nobody", color="muted")
        return top + _ROW * self.rows

    def _row(self, canvas: Canvas, part: Part, middle: float, width: float) -> None:
        look, base = self.looks[part.id], middle + 0.35 * canvas.size
        canvas.block(0, middle - _MARK / 2, _MARK, _MARK, look)
        canvas.text(_MARK + 7, base, f"r{part.id}")
        left = _MARK + 7 + self.name + 8
        if self.place == "queue":
            canvas.text(left, base, f"{part.known} tokens", color="muted")
            left += self.tokens + 12
        else:
            self._bar(canvas, part, left, middle, look)
            left += _BAR + 8
            left += self._dots(canvas, part, left, middle, look)
        told = _shorten(part.told, width - left, canvas.size)
        color = "ink" if part.place == "queue" or part.tokens != 1 else "muted"
        canvas.text(left, base, told, color=color)

    def _bar(self, canvas: Canvas, part: Part, x: float, middle: float, look: Style) -> None:
        """Draw how much of the known tokens is in the cache, and what this step adds."""
        h = 14.0
        scale = _BAR / max(part.known, 1)
        text = f"r{part.id}: {part.computed} of {part.known} known tokens are in the cache"
        if part.tokens:
            text += f", this step computes {part.tokens}"
        start = len(canvas)
        if part.computed:
            canvas.put(
                "rect",
                x=x,
                y=middle - h / 2,
                width=part.computed * scale,
                height=h,
                fill=paint(look.color),
                fill_opacity=0.35,
            )
        if part.tokens:
            wide = max(part.tokens * scale, 3.0)
            canvas.block(x + min(part.computed * scale, _BAR - wide), middle - h / 2, wide, h, look)
        canvas.put(
            "rect",
            x=x,
            y=middle - h / 2,
            width=_BAR,
            height=h,
            fill="none",
            stroke=paint("axis"),
            rx=2,
        )
        canvas.group(start, pointer_events="all")
        canvas.put(
            "rect",
            tooltip(text),
            x=x,
            y=middle - h / 2,
            width=_BAR,
            height=h,
            fill="none",
            pointer_events="all",
        )

    def _dots(self, canvas: Canvas, part: Part, x: float, middle: float, look: Style) -> float:
        """Draw the tokens of output, the new one filled; return the width used."""
        made = part.produced + part.sampled
        hover = f"r{part.id}: {made} token{'s' * (made != 1)} of output so far"
        room = _DOT * _MOST_DOTS + 6
        if made > _MOST_DOTS:
            text = str(part.produced)
            canvas.text(x, middle + 0.35 * canvas.size, text, color="muted")
            at = x + text_width(text, canvas.size) + 6
            if part.sampled:
                canvas.put("circle", tooltip(hover), cx=at, cy=middle, r=4, fill=paint(look.color))
            return room
        for i in range(made):
            new = part.sampled and i == made - 1
            canvas.put(
                "circle",
                tooltip(hover),
                cx=x + 4 + i * _DOT,
                cy=middle,
                r=4 if new else 3,
                fill=paint(look.color),
                fill_opacity=None if new else 0.45,
            )
        return room


def _shorten(text: str, width: float, size: float) -> str:
    """Cut a text that is too long for its place; the sentence below the picture has it all."""
    if text_width(text, size) <= width:
        return text
    while text and text_width(f"{text}…", size) > width:
        text = text[:-1]
    return f"{text.rstrip()}…"


class Tokens(_Full):
    """How the step's tokens are shared, against the budget or the fullest step."""

    def __init__(self, story: Story, now: Moment, looks: dict[int, Style]) -> None:
        self.now, self.looks = now, looks
        self.budget = story.result.token_budget
        sums = (sum(s.tokens for s in step.scheduled) for step in story.steps)
        self.most = max(1, *sums, self.budget or 1)

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw the bar and return its height, in px."""
        used, size = self.now.tokens, canvas.size
        more = f"budget {svg.fmt(self.budget)}" if self.budget else "no token budget"
        top = self.head(canvas, f"Tokens in this step: {svg.fmt(used)}", more, frame.width)
        parts = [(s.id, s.tokens) for s in self.now.step.scheduled]
        _shares(canvas, parts, self.most, self.looks, top, frame.width, "token")
        if self.budget:
            at = min(frame.width - 1.5, 1 + (frame.width - 2) * self.budget / self.most)
            canvas.line(at, top - 4, at, top + 26, "ink", 3)
        idle = self.now.step.idle_slots
        if not idle:
            return top + 26
        places = f"{idle} idle place{'s' * (idle > 1)} computed as well"
        canvas.text(0, top + 26 + size, places, color="muted")
        return top + 26 + size * 1.4


class Memory(_Full):
    """Who holds the KV blocks: block by block, or as a bar of counts."""

    def __init__(self, story: Story, now: Moment, looks: dict[int, Style]) -> None:
        self.story, self.now, self.looks = story, now, looks

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw the blocks and return the height, in px."""
        kv, step = self.story.result.kv, self.now.step
        held = sum(step.blocks.values())
        if kv.blocks is None:
            text = f"KV blocks held: {svg.fmt(held)}"
            top = self.head(canvas, text, "no limit in this run", frame.width)
            most = max(sum(s.blocks.values()) for s in self.story.steps)
            _shares(canvas, [*step.blocks.items()], most, self.looks, top, frame.width, "block")
            return top + 26
        text = f"KV blocks: {svg.fmt(step.free_blocks[1])} of {svg.fmt(kv.usable)} free"
        top = self.head(canvas, text, f"{kv.block_size} tokens each", frame.width)
        if self.story.shots is None:
            parts = [*step.blocks.items()]
            _shares(canvas, parts, kv.usable, self.looks, top, frame.width, "block")
            return top + 26
        return self._cells(canvas, top, frame.width)

    def _cells(self, canvas: Canvas, top: float, width: float) -> float:
        assert self.story.shots is not None
        shot, size = self.story.shots[self.now.number], self.story.result.kv.block_size
        count = len(shot.owners)
        cell = next((c for c in (40.0, 32, 26, 20, 16, 13, 10) if _lines(count, c, width) <= 4), 8)
        columns = int(width // cell)
        gap = 3 if cell > 16 else 1.5
        for i, (owner, tokens) in enumerate(zip(shot.owners, shot.tokens, strict=True)):
            row, column = divmod(i, columns)
            x, y, side = 1 + column * cell, top + row * cell, cell - gap
            if owner is None:
                empty = Style("axis", hollow=True)
                canvas.block(x, y, side, side, empty, f"block {i}: free")
                continue
            look = self.looks[owner]
            text = f"block {i}: r{owner}, {tokens} of {size} tokens"
            full = tokens / size
            if full < 1:
                canvas.block(x, y, side, side, Style(look.color, hollow=True), text)
            canvas.block(x, y + side * (1 - full), side, side * full, look, text)
            name = f"r{owner}"
            if text_width(name, canvas.size) <= side:
                _label(canvas, x + side / 2, y + side / 2 + 0.35 * canvas.size, name)
        return top + math.ceil(count / columns) * cell


def _lines(count: int, cell: float, width: float) -> int:
    return math.ceil(count / (width // cell))


def _shares(
    canvas: Canvas,
    parts: Sequence[tuple[int, int]],
    whole: int,
    looks: dict[int, Style],
    top: float,
    width: float,
    unit: str,
) -> None:
    """Draw a bar of parts, each at least a hair wide, in a frame of `whole` units."""
    h, room = 22.0, width - 2
    canvas.put("rect", x=1, y=top, width=room, height=h, fill="none", stroke=paint("axis"), rx=2)
    wide = [max(3.0, room * n / max(whole, 1)) for _, n in parts]
    squeeze = min(1.0, room / sum(wide)) if wide else 1.0
    x = 1.0
    for (rid, n), w in zip(parts, wide, strict=True):
        w *= squeeze
        text = f"r{rid}: {svg.fmt(n)} {unit}{'s' * (n != 1)}"
        canvas.block(x, top, w - (1 if w > 2.5 else 0), h, looks[rid], text)
        name = f"r{rid} {svg.fmt(n)}"
        if text_width(name, canvas.size) + 8 <= w:
            _label(canvas, x + w / 2, top + h / 2 + 0.35 * canvas.size, name)
        x += w


def _label(canvas: Canvas, x: float, base: float, text: str) -> None:
    """Write on a hatch, on a plate in the page's color."""
    wide, high = text_width(text, canvas.size) + 2, canvas.size + 2
    canvas.put(
        "rect",
        x=x - wide / 2,
        y=base - 0.35 * canvas.size - high / 2,
        width=wide,
        height=high,
        fill=paint("bg"),
        fill_opacity=0.88,
        rx=3,
    )
    canvas.text(x, base, text, anchor="middle")
