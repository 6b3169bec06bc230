"""A chart: lines, steps, points, bars and bands over two axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..errors import InputError
from .axes import Axis, Scale, as_axis, x_axis
from .canvas import Canvas, legend, swatch, text_width, wrap
from .look import Style, Value, paint, style
from .numbers import finite, fmt, num
from .panel import Frame, Panel


@dataclass(slots=True)
class _Series:
    shape: Literal["line", "step", "scatter", "bars"]
    name: str
    xs: Sequence[Value]
    ys: Sequence[Value]
    look: Style
    ghost: bool = False
    fill: bool = False
    lo: Sequence[Value] = ()
    hi: Sequence[Value] = ()

    def glyph(self, canvas: Canvas, x: float, y: float) -> None:
        """Draw a sample for the legend."""
        if self.ghost:
            canvas.line(x - 11, y, x + 11, y, "axis", 2, "5 4")
        elif self.shape == "bars":
            swatch(self.look)(canvas, x, y)
        else:
            if self.shape != "scatter":
                canvas.line(x - 11, y, x + 11, y, self.look.color, 2.5)
            canvas.marker(x, y, self.look)


@dataclass(frozen=True, slots=True)
class Line:
    """A reference line across the plot."""

    at: float
    label: str

    def glyph(self, canvas: Canvas, x: float, y: float) -> None:
        """Draw a sample for the legend."""
        canvas.line(x - 11, y, x + 11, y, "ink", 1.25, "2 3")


class Chart(Panel):
    """Lines, steps, points and bars over two axes.

    Parameters
    ----------
    x, y : Axis or str
        The axes, or just their labels with units.
    title : str
        A line above the plot.
    height : float
        Height of the plot itself, in px.
    legend : {"auto", "direct", "top", "none"}
        Where names go. ``auto`` writes them beside the lines' ends if that leaves room, else
        into rows above the plot; never over the data.
    stacked : bool
        Whether bars of one category stand on each other.

    Examples
    --------
    >>> chart = Chart("Rate (requests/s)", Axis("P99 ITL (ms)", "log"))
    >>> chart.line("continuous", [1, 2, 4], [20, 22, 31])
    >>> chart.hline(50, "SLO")
    """

    def __init__(
        self,
        x: Axis | str = "",
        y: Axis | str = "",
        *,
        title: str = "",
        height: float = 230,
        legend: Literal["auto", "direct", "top", "none"] = "auto",
        stacked: bool = False,
    ) -> None:
        self.x, self.y, self.title = as_axis(x), as_axis(y), title
        self.height, self.legend, self.stacked = height, legend, stacked
        self._series: list[_Series] = []
        self._hlines: list[Line] = []
        self._vlines: list[Line] = []

    # What to show

    def _add(
        self,
        shape: Literal["line", "step", "scatter", "bars"],
        name: str,
        xs: Iterable[Value],
        ys: Iterable[Value],
        color: int | str | None,
        ghost: bool,
    ) -> _Series:
        xs, ys = list(xs), list(ys)
        if len(xs) != len(ys):
            raise InputError(
                f"svg: series {name!r} has {len(xs)} places and {len(ys)} values; give one each"
            )
        slot = 1 + sum(not s.ghost for s in self._series) if color is None else color
        series = _Series(shape, name, xs, ys, style(slot), ghost)
        self._series.append(series)
        return series

    def line(
        self,
        name: str,
        xs: Iterable[Value],
        ys: Iterable[Value],
        *,
        color: int | str | None = None,
        ghost: bool = False,
        lo: Iterable[Value] = (),
        hi: Iterable[Value] = (),
    ) -> None:
        """Add a line with markers; None and NaN leave gaps.

        Parameters
        ----------
        name : str
            For the legend and hover texts; "" for none.
        xs, ys : iterables of numbers
            In the axes' units.
        color : int or str, optional
            A series slot (1, 2, ...) or a kind (``"prefill"``); the next free slot if not given.
        ghost : bool
            Draw it as the default run: gray, dashed, behind the others, taking up no slot.
        lo, hi : iterables of numbers
            An error band around the line, one pair for each point.

        Raises
        ------
        InputError
            If the lengths differ or there is no such color.
        """
        series = self._add("line", name, xs, ys, color, ghost)
        series.lo, series.hi = list(lo), list(hi)
        if {len(series.lo), len(series.hi)} - {0, len(series.xs)} or (
            len(series.lo) != len(series.hi)
        ):
            raise InputError(f"svg: the band of {name!r} needs one lo and one hi for each point")

    def step(
        self,
        name: str,
        xs: Iterable[Value],
        ys: Iterable[Value],
        *,
        color: int | str | None = None,
        ghost: bool = False,
        fill: bool = False,
    ) -> None:
        """Add a staircase: each value holds from its place to the next (`fill`: down to zero)."""
        self._add("step", name, xs, ys, color, ghost).fill = fill

    def scatter(
        self,
        name: str,
        xs: Iterable[Value],
        ys: Iterable[Value],
        *,
        color: int | str | None = None,
        ghost: bool = False,
    ) -> None:
        """Add points."""
        self._add("scatter", name, xs, ys, color, ghost)

    def bars(
        self,
        name: str,
        values: Iterable[Value],
        *,
        color: int | str | None = None,
        ghost: bool = False,
    ) -> None:
        """Add a bar per category of the x axis."""
        values = list(values)
        if len(values) != len(self.x.categories):
            raise InputError(
                f"svg: bars {name!r} have {len(values)} values for {len(self.x.categories)} "
                f"categories; give one for each of the x axis's categories"
            )
        self._add("bars", name, range(len(values)), values, color, ghost)

    def hline(self, at: float, label: str = "") -> None:
        """Add a horizontal reference line."""
        self._hlines.append(Line(at, label))

    def vline(self, at: float, label: str = "") -> None:
        """Add a vertical reference line; its label stands above the plot."""
        self._vlines.append(Line(at, label))

    # How to show it

    def x_span(self) -> tuple[float, float] | None:
        """Return the ends of the x axis, or None for categories."""
        if self.x.categories:
            return None
        values = [v for s in self._series for v in s.xs]
        return self.x.span([*values, *(v.at for v in self._vlines)], nice=False, zero=False)

    def _y_span(self) -> tuple[float, float]:
        values: list[Value] = [h.at for h in self._hlines]
        for s in self._series:
            values += [*s.ys, *s.lo, *s.hi]
        bars = [s for s in self._series if s.shape == "bars"]
        if self.stacked:
            values += [t for g in (True, False) for t in _totals(bars, ghost=g)]
        zero = self.y.zero or bool(bars) or any(s.fill for s in self._series)
        return self.y.span(values, nice=True, zero=zero)

    def _y_count(self) -> int:
        return max(2, min(6, int(self.height / 44)))

    def _named(self) -> list[tuple[_Series | Line, str]]:
        items: list[tuple[_Series | Line, str]] = []
        for s in self._series:
            # Several ghosts of one name are one entry: "default run".
            if s.name and not (s.ghost and any(n == s.name for _, n in items)):
                items.append((s, s.name))
        items += [(h, h.label) for h in self._hlines if h.label]
        return items

    def _direct(self, width: float, size: float) -> bool:
        items = self._named()
        if self.legend != "auto":
            return self.legend == "direct"
        lines = all(isinstance(i, Line) or i.shape in ("line", "step") for i, _ in items)
        longest = max((text_width(n, size) for _, n in items), default=0)
        return lines and longest + 40 <= 0.32 * width and len(items) * size * 1.2 <= self.height

    def margins(self, width: float, size: float) -> tuple[float, float]:
        """Return the room for tick labels on the left and names on the right, in px."""
        ticks = Scale(self.y.scale, *self._y_span(), 0, 1).ticks(self._y_count())
        left = 12 + max(text_width(t, size) for _, t in ticks)
        span = self.x_span()
        edge = Scale(self.x.scale, *span, 0, 1).ticks(8)[-1:] if span else []
        right = max([14.0, *(4 + text_width(t, size) / 2 for _, t in edge)])
        if self._direct(width, size):
            right = 40 + max((text_width(n, size) for _, n in self._named()), default=0)
        return left, right

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw the chart and return its height, in px."""
        size = canvas.size
        top = self._title(canvas)
        direct = self._direct(frame.width, size)
        named = self._named()
        # One series needs no key unless something else has one.
        if not direct and self.legend != "none" and (len(named) > 1 or self._hlines):
            top += legend(canvas, [(i.glyph, n) for i, n in named], 0, top, frame.width)
        if self.y.label:
            canvas.text(0, top + size, self.y.label, color="muted")
            top += size * 1.5
        left, right = frame.left, frame.width - frame.right
        span = frame.x_span or self.x_span() or (0.0, float(len(self.x.categories)))
        x = Scale("linear" if self.x.categories else self.x.scale, *span, left, right)
        top = self._vlabels(canvas, x, top)
        bars = [s for s in self._series if s.shape == "bars"]
        top += self._headroom(size)
        bottom = top + self.height
        y = Scale(self.y.scale, *self._y_span(), bottom, top)

        for value, text in y.ticks(self._y_count()):
            canvas.line(left, y(value), right, y(value), "grid")
            canvas.text(left - 8, y(value) + 0.35 * size, text, anchor="end", color="muted")
        if self.x.categories:
            below = self._categories(canvas, x, bottom, named=frame.x_named)
        else:
            below = x_axis(canvas, x, self.x.label, top, bottom, named=frame.x_named)

        start = len(canvas)
        self._draw_bars(canvas, x, y, bars)
        for s in sorted(self._series, key=lambda s: not s.ghost):
            if s.shape != "bars":
                self._draw_series(canvas, x, y, s)
        if self.x.domain or self.y.domain:
            # Only then can data lie outside; the rim keeps markers on the edge whole.
            ref = canvas.clip(left - 8, top - 8, right - left + 16, self.height + 16)
            canvas.group(start, clip_path=ref)
        for h in self._hlines:
            if (at := y.place(h.at)) is not None and top - 1 <= at <= bottom + 1:
                canvas.line(left, at, right, at, "ink", 1.25, "2 3")
        if not any(finite(s.ys) for s in self._series) and not self._hlines:
            middle = (left + right) / 2, (top + bottom) / 2
            canvas.text(*middle, "nothing to show", anchor="middle", color="muted")
        if direct:
            self._labels(canvas, x, y, named)
        return bottom + below

    def _headroom(self, size: float) -> float:
        # Bars carry their values on top.
        return size * 1.2 if self.x.categories else 8.0

    def _vlabels(self, canvas: Canvas, x: Scale, top: float) -> float:
        """Draw vertical lines' labels in as many rows as keep them apart, and the lines."""
        pitch = canvas.size * 1.35
        edges: list[float] = []
        placed: list[tuple[float, float, str, int]] = []
        for v in sorted(self._vlines, key=lambda v: v.at):
            at = x.place(v.at)
            if at is None or not x.start - 1 <= at <= x.stop + 1:
                continue
            w = text_width(v.label, canvas.size)
            begin = max(0.0, min(at - w / 2, x.stop - w))
            row = next((i for i, e in enumerate(edges) if e <= begin), len(edges))
            edges[row : row + 1] = [begin + w + 10]
            placed.append((at, begin + w / 2, v.label, row))
        for at, middle, label, row in placed:
            base = top + pitch * (row + 0.8)
            if label:
                canvas.text(middle, base, label, anchor="middle")
            begin = top + pitch * len(edges)
            end = begin + self._headroom(canvas.size) + self.height
            canvas.line(at, begin, at, end, "ink", 1.25, "2 3")
        return top + pitch * len(edges)

    def _categories(self, canvas: Canvas, x: Scale, bottom: float, *, named: bool) -> float:
        size = canvas.size
        canvas.line(x.start, bottom, x.stop, bottom, "axis", 1.25)
        if not named:
            return 8.0
        room = (x.stop - x.start) / len(self.x.categories) - 6
        rows = 1
        for i, name in enumerate(self.x.categories):
            lines = wrap(name, room, size)
            rows = max(rows, len(lines))
            for j, text in enumerate(lines):
                base = bottom + 6 + size * (1 + 1.15 * j)
                canvas.text(x(i + 0.5), base, text, anchor="middle", color="muted")
        below = 12 + size * (1 + 1.15 * (rows - 1))
        if self.x.label:
            below += size * 1.3
            canvas.text((x.start + x.stop) / 2, bottom + below - 4, self.x.label, anchor="middle")
        return below + 4

    def _draw_bars(self, canvas: Canvas, x: Scale, y: Scale, bars: Sequence[_Series]) -> None:
        real = [s for s in bars if not s.ghost]
        ghosts = [s.ys for s in bars if s.ghost]
        if self.stacked and ghosts:
            ghosts = [_totals(bars, ghost=True)]
        columns = 1 if self.stacked else max(len(real), len(ghosts))
        band = (x.stop - x.start) / max(len(self.x.categories), 1)
        wide = min(64.0, band * 0.76 / max(columns, 1))
        zero = y(max(y.lo, min(0.0, y.hi))) if y.kind == "linear" else y.start
        tops: dict[tuple[int, int], tuple[float, float]] = {}

        def left(category: int, column: int) -> float:
            return x(category + 0.5) + (column - columns / 2) * wide

        for i, category in enumerate(self.x.categories):
            base = 0.0
            for j, s in enumerate(real):
                value = s.ys[i]
                end = y.place(value if value is None else base + value)
                if end is None or value is None:
                    continue
                begin = y(base) if base else zero
                column = 0 if self.stacked else j
                high = min(begin, end)
                hover = ", ".join(t for t in (category, s.name, _with_unit(value, self.y)) if t)
                canvas.block(left(i, column) + 1, high, wide - 2, abs(begin - end), s.look, hover)
                tops[i, column] = high, base + value
                base += value if self.stacked else 0
        for j, values in enumerate(ghosts):
            for i, value in enumerate(values):
                end = y.place(value)
                if end is None:
                    continue
                a, b = left(i, j) - 2, left(i, j) + wide + 2
                path = f"M{num(a)} {num(zero)}V{num(end)}H{num(b)}V{num(zero)}"
                hover = f"before: {_with_unit(value, self.y)}"
                canvas.path(path, stroke="axis", width=2, dash="5 4", hover=hover)
                if (i, j) in tops:
                    # The value stands clear of both.
                    tops[i, j] = min(tops[i, j][0], end), tops[i, j][1]
        labels = {k: (high, fmt(tidy(value))) for k, (high, value) in tops.items()}
        room = (band if self.stacked else wide) - 2
        if all(text_width(text, canvas.size) <= room for _, text in labels.values()):
            for (i, j), (high, text) in labels.items():
                canvas.text(left(i, j) + wide / 2, high - 5, text, anchor="middle", color="muted")

    def _draw_series(self, canvas: Canvas, x: Scale, y: Scale, s: _Series) -> None:
        points = [(x.place(a), y.place(b)) for a, b in zip(s.xs, s.ys, strict=True)]
        runs = _runs(points)
        color = paint("axis" if s.ghost else s.look.color)
        if s.lo and not s.ghost:
            for band in _band_paths(x, y, s):
                canvas.put("path", d=band, fill=color, fill_opacity=0.22, stroke="none")
        if s.shape != "scatter":
            for run in runs:
                path = _path(run, stairs=s.shape == "step")
                if s.fill and not s.ghost:
                    floor = num(y.start)
                    area = f"{path}V{floor}H{num(run[0][0])}Z"
                    canvas.put("path", d=area, fill=color, fill_opacity=0.22)
                if s.ghost:
                    canvas.path(path, stroke="axis", width=2, dash="5 4", hover=s.name)
                else:
                    canvas.path(path, stroke=s.look.color, width=2.5, hover=s.name)
        if s.ghost and s.shape != "scatter":
            return
        places = [(i, px, py) for i, (px, py) in enumerate(points) if px is not None]
        stride = 1
        if s.shape == "step" or (s.shape == "line" and len(places) > 25):
            # Here markers only tell lines apart: a few will do, and for one line none.
            many = sum(not t.ghost for t in self._series) > 1
            stride = math.ceil(len(places) / 8) if many else 0
        for i, px, py in places:
            marked = stride > 0 and i % stride == stride // 2
            if py is None or not (marked or len(places) <= 120):
                continue
            values = f"{_with_unit(s.xs[i], self.x)}, {_with_unit(s.ys[i], self.y)}"
            hover = f"{s.name}: {values}" if s.name else values
            if marked:
                r = 3.5 if s.shape == "scatter" and len(places) > 60 else 4.5
                canvas.marker(px, py, s.look, r, hover, "axis" if s.ghost else "")
            else:
                canvas.spot(px, py, hover)

    def _labels(
        self, canvas: Canvas, x: Scale, y: Scale, named: Sequence[tuple[_Series | Line, str]]
    ) -> None:
        """Write names beside the ends of their lines, apart from each other."""
        pitch = canvas.size * 1.2
        ends: list[tuple[float, float, _Series | Line, str]] = []
        for item, name in named:
            if isinstance(item, Line):
                last = x.stop, y.place(item.at)
            else:
                points = ((x.place(a), y.place(b)) for a, b in zip(item.xs, item.ys, strict=True))
                seen = [(a, b) for a, b in points if a is not None and b is not None]
                last = seen[-1] if seen else (x.stop, None)
            if last[1] is not None:
                ends.append((last[0], max(y.stop, min(last[1], y.start)), item, name))
        ends.sort(key=lambda e: e[1])
        places = _spread([e[1] for e in ends], pitch, y.stop, y.start)
        for (px, py, item, name), at in zip(ends, places, strict=True):
            color = "axis" if isinstance(item, Line) or item.ghost else item.look.color
            if abs(at - py) > 2 or px < x.stop - 2:
                bends = [(px + 6, py), (x.stop + 6, py), (x.stop + 17, at)]
                canvas.path(_path(bends), stroke=color)
            if isinstance(item, Line):
                canvas.line(x.stop + 19, at, x.stop + 33, at, "ink", 2, "2 3")
            elif item.ghost:
                canvas.line(x.stop + 19, at, x.stop + 33, at, "axis", 2, "5 4")
            else:
                canvas.marker(x.stop + 26, at, item.look)
            canvas.text(x.stop + 37, at + 0.35 * canvas.size, name)


def _with_unit(v: Value, axis: Axis) -> str:
    return f"{fmt(v)} {axis.unit}" if axis.unit else fmt(v)


def tidy(x: float) -> Value:
    """Return a whole number as an int."""
    return round(x) if x == round(x) else x


def _totals(bars: Sequence[_Series], *, ghost: bool) -> list[Value]:
    stacks = zip(*(s.ys for s in bars if s.ghost is ghost), strict=True)
    return [sum(finite(stack)) for stack in stacks]


def _runs(points: Iterable[tuple[float | None, float | None]]) -> list[list[tuple[float, float]]]:
    """Split at the points that have no place."""
    runs: list[list[tuple[float, float]]] = [[]]
    for a, b in points:
        if a is None or b is None:
            runs.append([])
        else:
            runs[-1].append((a, b))
    return [r for r in runs if r]


def _path(run: Sequence[tuple[float, float]], *, stairs: bool = False) -> str:
    (a, b), rest = run[0], run[1:]
    link = "H{} V{}" if stairs else "L{} {}"
    return f"M{num(a)} {num(b)}" + "".join(link.format(num(p), num(q)) for p, q in rest)


def _band_paths(x: Scale, y: Scale, s: _Series) -> list[str]:
    lows = [(x.place(a), y.place(b)) for a, b in zip(s.xs, s.lo, strict=True)]
    highs = [(x.place(a), y.place(b)) for a, b in zip(s.xs, s.hi, strict=True)]
    # A gap in either edge is a gap in the band.
    whole = [None not in (*p, *q) for p, q in zip(lows, highs, strict=True)]
    gap = (None, None)
    pairs = zip(
        _runs(p if w else gap for p, w in zip(lows, whole, strict=True)),
        _runs(p if w else gap for p, w in zip(highs, whole, strict=True)),
        strict=True,
    )
    return [f"{_path(high)}L{_path(low[::-1])[1:]}Z" for low, high in pairs]


def _spread(wanted: Sequence[float], pitch: float, top: float, bottom: float) -> list[float]:
    """Move sorted places apart by `pitch`, as little as possible, and keep them in the plot."""
    groups: list[list[float]] = []

    def first(group: list[float]) -> float:
        height = pitch * (len(group) - 1)
        middle = sum(group) / len(group)
        return max(top, min(middle - height / 2, bottom - height))

    for place in wanted:
        groups.append([place])
        # Neighbors that are too close become one group, centered on what they wanted.
        while len(groups) > 1 and first(groups[-2]) + pitch * len(groups[-2]) > first(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [first(group) + pitch * i for group in groups for i in range(len(group))]
