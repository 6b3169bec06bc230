"""Axes and scales."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from ..errors import InputError
from .canvas import Canvas, text_width
from .look import Value
from .numbers import exponent, finite, linear_ticks, log2_ticks, log_ticks, tick_labels, times10

ScaleKind: TypeAlias = Literal["linear", "log", "log2"]


@dataclass(frozen=True)
class Axis:
    """What an axis shows.

    Parameters
    ----------
    label : str
        What is measured, with its unit: ``"Arrival rate (requests/s)"``.
    scale : {"linear", "log", "log2"}
        ``log2`` has ticks at powers of two.
    domain : (float, float), optional
        Ends of the axis; from the data if not given.
    zero : bool
        Whether a linear y axis has to include zero.
    categories : sequence of str
        Names along an x axis with bars.
    unit : str
        For hover texts and a timeline, e.g. ``"ms"``; the label of a chart carries its own.
    """

    label: str = ""
    scale: ScaleKind = "linear"
    domain: tuple[float, float] | None = None
    zero: bool = True
    categories: Sequence[str] = ()
    unit: str = ""

    def __post_init__(self) -> None:
        if self.scale not in ("linear", "log", "log2"):
            raise InputError(f"svg: no scale {self.scale!r}; use linear, log or log2")
        if self.domain is not None:
            lo, hi = self.domain
            if not (math.isfinite(lo) and math.isfinite(hi) and lo < hi):
                raise InputError(f"svg: an axis must run from low to high, not {lo} to {hi}")
            if self.scale != "linear" and lo <= 0:
                raise InputError(f"svg: a log axis must start above zero, not at {lo}")

    def span(self, values: Iterable[Value], *, nice: bool, zero: bool) -> tuple[float, float]:
        """Return the ends of the axis for these values."""
        if self.domain is not None:
            return self.domain
        log = self.scale != "linear"
        seen = [v for v in finite(values) if v > 0 or not log]
        if not seen:
            return (1.0, 10.0) if log else (0.0, 1.0)
        lo, hi = min(seen), max(seen)
        if not log and zero:
            lo, hi = min(lo, 0.0), max(hi, 0.0)
        if hi - lo <= 1e-9 * max(abs(lo), abs(hi)):
            lo, hi = (lo / 2, hi * 2) if log else (lo - 0.5 * abs(lo or 1), hi + 0.5 * abs(hi or 1))
        if not nice:
            return lo, hi
        if self.scale == "log2":
            low, top = math.frexp(lo)[1] - 1, math.frexp(hi)
            return math.ldexp(1.0, low), math.ldexp(1.0, top[1] - (top[0] == 0.5))
        if log:
            return _nice_below(lo), _nice_above(hi)
        ticks = linear_ticks(lo, hi)
        step = ticks[1] - ticks[0]
        return math.floor(lo / step + 1e-9) * step, math.ceil(hi / step - 1e-9) * step


def _nice_below(x: float) -> float:
    steps = [times10(m, e) for e in (exponent(x) - 1, exponent(x)) for m in (1, 2, 5)]
    return max(s for s in steps if s <= x * (1 + 1e-9))


def _nice_above(x: float) -> float:
    steps = [times10(m, e) for e in (exponent(x), exponent(x) + 1) for m in (1, 2, 5)]
    return min(s for s in steps if s >= x * (1 - 1e-9))


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from ``lo .. hi`` to pixels from ``start .. stop``."""

    kind: ScaleKind
    lo: float
    hi: float
    start: float
    stop: float

    def __call__(self, v: float) -> float:
        """Return the place of a value in px."""
        if self.kind == "linear":
            part = (v - self.lo) / (self.hi - self.lo)
        else:
            low = math.log10(self.lo)
            part = (math.log10(v) - low) / (math.log10(self.hi) - low)
        return self.start + part * (self.stop - self.start)

    def ticks(self, count: int) -> tuple[tuple[float, str], ...]:
        """Return ticks and their labels."""
        return _ticks(self.kind, self.lo, self.hi, count)

    def place(self, x: Value) -> float | None:
        """Return the pixel of a value, or None where the axis has no place for it."""
        if x is None or not math.isfinite(x) or (self.kind != "linear" and x <= 0):
            return None
        return self(x)


@functools.lru_cache(maxsize=256)
def _ticks(kind: ScaleKind, lo: float, hi: float, count: int) -> tuple[tuple[float, str], ...]:
    make = {"linear": linear_ticks, "log": log_ticks, "log2": log2_ticks}[kind]
    values = make(lo, hi, count)
    return tuple(zip(values, tick_labels(values, log=kind != "linear"), strict=True))


def as_axis(label: Axis | str) -> Axis:
    """Return an axis; a string is its label."""
    return Axis(label) if isinstance(label, str) else label


def x_axis(
    canvas: Canvas, x: Scale, label: str, top: float, bottom: float, *, named: bool
) -> float:
    """Draw vertical grid lines, ticks and label, and return the height below `bottom`."""
    size = canvas.size
    ticks = x.ticks(max(2, min(9, int((x.stop - x.start) / (44 if x.kind == "log2" else 72)))))
    edge = -math.inf
    for value, text in ticks:
        at = x(value)
        canvas.line(at, top, at, bottom, "grid")
        half = text_width(text, size) / 2
        if named and at - half > edge:
            canvas.line(at, bottom, at, bottom + 5, "axis")
            canvas.text(at, bottom + 6 + size, text, anchor="middle", color="muted")
            edge = at + half + 6
    canvas.line(x.start, bottom, x.stop, bottom, "axis", 1.25)
    if not named:
        return 8.0
    if not label:
        return size + 12
    canvas.text((x.start + x.stop) / 2, bottom + 10 + 2.3 * size, label, anchor="middle")
    return 2.3 * size + 18
