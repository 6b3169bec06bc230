"""Numbers as text, and where an axis puts its ticks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from .look import Cell, Value


def num(x: float) -> str:
    """Format a coordinate: two decimals at most, never ``-0``.

    The nudge lets exact ties round the same way whatever the last bit of a logarithm is:
    that bit may differ between the C libraries of CPython and the browser.
    """
    text = f"{x + 1e-9:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def fmt(x: Cell) -> str:
    """Format a value for people: four significant digits, thousands set off by commas."""
    if x is None:
        return "–"
    if isinstance(x, str):
        return x
    if isinstance(x, int):
        return f"{x:,}" if abs(x) >= 10_000 else str(x)
    if not math.isfinite(x):
        return "–"
    if abs(x) >= 1000:
        return fmt(round(x))
    if x and abs(x) < 1e-4:
        return f"{x:.3e}"
    return f"{x:.4g}"


def exponent(x: float) -> int:
    """Return the power of ten of the first digit."""
    # Through text, because log10 may differ in the last bit between C libraries.
    return int(f"{x:e}".split("e")[1])


def times10(mantissa: int, exponent: int) -> float:
    """Return mantissa times ten to the exponent, rounded once."""
    return float(f"{mantissa}e{exponent}")


def linear_ticks(lo: float, hi: float, count: int = 5) -> list[float]:
    """Return about `count` (two or more) round numbers from `lo` to `hi`."""
    raw = (hi - lo) / max(count, 1)
    first = exponent(raw)
    steps = ((m, e) for e in (first, first + 1) for m in (1, 2, 5))
    m, e = next((m, e) for m, e in steps if times10(m, e) >= raw * (1 - 1e-9))
    step = times10(m, e)
    start, stop = math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9)
    if stop <= start:
        return linear_ticks(lo, hi, count + 1)
    return [times10(i * m, e) for i in range(start, stop + 1)]


def log_ticks(lo: float, hi: float, count: int = 6) -> list[float]:
    """Return round numbers from `lo` to `hi` (both positive): decades, or 1-2-5, or finer."""
    decades = range(exponent(lo) - 1, exponent(hi) + 2)

    def within(mantissas: Iterable[int]) -> list[float]:
        every = [times10(m, e) for e in decades for m in mantissas]
        return [t for t in every if lo * (1 - 1e-9) <= t <= hi * (1 + 1e-9)]

    coarse, middle, fine = within((1,)), within((1, 2, 5)), within(range(1, 10))
    if len(coarse) > 2 or (len(coarse) == 2 and len(middle) > 1.5 * count):
        return coarse[:: math.ceil(len(coarse) / max(count, 2))]
    if len(middle) > 2:
        return middle
    return fine if 2 < len(fine) <= 1.5 * count else linear_ticks(lo, hi, 4)


def log2_ticks(lo: float, hi: float, count: int = 8) -> list[float]:
    """Return powers of two from `lo` to `hi` (both positive)."""
    powers = range(math.frexp(lo)[1] - 1, math.frexp(hi)[1] + 1)
    found = [t for t in (math.ldexp(1.0, e) for e in powers) if lo <= t <= hi]
    if len(found) < 2:
        return linear_ticks(lo, hi, 4)
    return found[:: math.ceil(len(found) / max(count, 2))]


def tick_labels(values: Sequence[float], *, log: bool = False) -> list[str]:
    """Label ticks: ``5k`` and ``2M`` for large ones, one suffix for all on a linear axis."""
    top = max((abs(v) for v in values), default=0.0)

    def label(v: float) -> str:
        size = abs(v) if log else top
        for unit, suffix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
            if size >= (unit if unit > 1e3 else 1e4) and v:
                return f"{v / unit:.6g}{suffix}"
        return f"{v:.6g}"

    return [label(v).replace("-", "−") for v in values]


def finite(values: Iterable[Value]) -> list[float]:
    """Return the values that can be drawn."""
    return [float(v) for v in values if v is not None and math.isfinite(v)]
