"""A timeline: what each request does when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..errors import InputError
from .axes import Axis, Scale, x_axis
from .canvas import Canvas, Glyph, legend, swatch, text_width, tooltip
from .chart import Line
from .look import KINDS, Value, paint, style
from .numbers import fmt, num
from .panel import Frame, Panel


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a request's life: from `start` to `end`, doing `kind` (see `KINDS`)."""

    start: float
    end: float
    kind: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Row:
    label: str
    segments: Sequence[Segment]
    arrival: float | None
    first_token: float | None


class Timeline(Panel):
    """Who did what when: one row per request. It keeps its size and scrolls sideways.

    Parameters
    ----------
    unit : str
        Unit of all times.
    title : str
        A line above the rows.
    width : float
        Width of the panel in px.
    label : str
        Label of the time axis; "Time" with the unit if not given.

    Examples
    --------
    >>> timeline = Timeline(unit="ms")
    >>> timeline.row("r0", [Segment(0, 5, "waiting"), Segment(5, 20, "prefill")], arrival=0)
    """

    scrolls = True

    def __init__(
        self, *, unit: str = "ms", title: str = "", width: float = 640, label: str = ""
    ) -> None:
        self.title, self.unit, self.min_width = title, unit, width
        self.x = Axis(label or (f"Time ({unit})" if unit else "Time"), unit=unit)
        self._rows: list[_Row] = []
        self._vlines: list[Line] = []

    def row(
        self,
        label: str,
        segments: Iterable[Segment],
        *,
        arrival: float | None = None,
        first_token: float | None = None,
    ) -> None:
        """Add a row below the others; all times in the timeline's unit.

        Raises
        ------
        InputError
            If a segment has an unknown kind or ends before it starts.
        """
        segments = list(segments)
        for s in segments:
            style(s.kind)
            if not (math.isfinite(s.start) and math.isfinite(s.end) and s.start <= s.end):
                raise InputError(
                    f"svg: row {label!r} has a {s.kind} segment from {s.start} to {s.end}; "
                    f"a segment must end after it starts"
                )
        self._rows.append(_Row(label, segments, arrival, first_token))

    def vline(self, at: float, label: str = "") -> None:
        """Mark a moment across all rows."""
        self._vlines.append(Line(at, label))

    def x_span(self) -> tuple[float, float] | None:
        """Return the first and last moment, from zero on."""
        times: list[Value] = [v.at for v in self._vlines]
        for r in self._rows:
            times += [r.arrival, r.first_token]
            times += [t for s in r.segments for t in (s.start, s.end)]
        return self.x.span(times, nice=False, zero=True)

    def margins(self, width: float, size: float) -> tuple[float, float]:
        """Return the room for row labels on the left, in px, and a little on the right."""
        return 12 + max((text_width(r.label, size) for r in self._rows), default=0), 20.0

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw the timeline and return its height, in px."""
        size = canvas.size
        top = self._title(canvas)
        # Wrapped so narrowly that a phone shows all of it before any scrolling.
        top += legend(canvas, self._key(), 0, top, 330)
        left, right = frame.left, frame.width - frame.right
        span = frame.x_span or self.x_span()
        assert span is not None
        x = Scale("linear", *span, left, right)
        if any(v.label for v in self._vlines):
            top += size * 1.4
        many = len(self._rows) > 24
        pitch = 18.0 if many else 25.0
        bar = pitch - (4 if many else 7)
        if many:
            # Too tall for one look: repeat the times on top.
            for value, text in x.ticks(8):
                canvas.text(x(value), top + size, text, anchor="middle", color="muted")
            top += size * 1.5
        top += 4
        bottom = top + pitch * max(len(self._rows), 1) + 2
        below = x_axis(canvas, x, self.x.label, top - 4, bottom, named=frame.x_named)
        for i, row in enumerate(self._rows):
            middle = top + pitch * (i + 0.5)
            canvas.text(left - 10, middle + 0.35 * size, row.label, anchor="end")
            for s in row.segments:
                look = style(s.kind)
                h = max(3.0, bar * look.height)
                times = f"{fmt(s.start)} to {fmt(s.end)} {self.unit} ({fmt(s.end - s.start)})"
                hover = f"{row.label}: {s.kind}, {times}" + (f"; {s.note}" if s.note else "")
                a, b = x(s.start), x(s.end)
                # A hair between neighbors, where there is room for it.
                gap = 0.8 if b - a > 3 else 0.0
                canvas.block(a, middle - h / 2, b - a - gap, h, look, hover)
            if row.arrival is not None:
                text = f"{row.label} arrives at {fmt(row.arrival)} {self.unit}"
                _arrival(canvas, x(row.arrival), middle, bar, text)
            if row.first_token is not None:
                text = f"{row.label}: first token at {fmt(row.first_token)} {self.unit}"
                _first_token(canvas, x(row.first_token), middle, bar, text)
        for v in self._vlines:
            at = x(v.at)
            canvas.line(at, top - 6, at, bottom, "ink", 1.5, "2 3")
            half = text_width(v.label, size) / 2
            place = max(half, min(at, frame.width - half))
            canvas.text(place, top - 10, v.label, anchor="middle")
        return bottom + below

    def _key(self) -> list[tuple[Glyph, str]]:
        used = {s.kind for r in self._rows for s in r.segments}
        items = [(swatch(look), kind) for kind, look in KINDS.items() if kind in used]
        if any(r.arrival is not None for r in self._rows):
            items.append((lambda c, x, y: _arrival(c, x, y, 14), "arrival"))
        if any(r.first_token is not None for r in self._rows):
            items.append((lambda c, x, y: _first_token(c, x, y, 14), "first token"))
        return items


def _arrival(canvas: Canvas, x: float, y: float, bar: float, hover: str = "") -> None:
    h = bar / 2
    path = f"M{num(x)} {num(y - h)}V{num(y + h)}M{num(x)} {num(y - h)}l6 3.5l-6 3.5Z"
    ink = paint("ink")
    canvas.put("path", tooltip(hover), d=path, fill=ink, stroke=ink, stroke_width=1.5)


def _first_token(canvas: Canvas, x: float, y: float, bar: float, hover: str = "") -> None:
    canvas.put(
        "circle",
        tooltip(hover),
        cx=x,
        cy=y,
        r=min(5, bar / 2 - 2),
        fill=paint("bg"),
        stroke=paint("ink"),
        stroke_width=2,
    )
