"""Pictures as SVG strings: the drawing primitives that all live figures are made with.

Three ideas. A *panel* (`Chart`, `Timeline`, `BlockMap`, `BudgetBar`) holds data and can draw
itself. `figure` stacks panels into one picture, with their left and right edges aligned. The
`Figure` it returns carries the picture, a sentence that says what the picture shows, and the
table of its numbers.

Standard library only, because the same code runs in the browser, and deterministic: the same
input gives the same bytes on every machine, so a page can be compared with a test.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

from .errors import InputError

__all__ = [
    "HATCHES",
    "KINDS",
    "MARKERS",
    "PALETTE",
    "PALETTE_DARK",
    "THEME",
    "THEME_DARK",
    "Axis",
    "BlockMap",
    "BudgetBar",
    "Chart",
    "Figure",
    "Panel",
    "Part",
    "Segment",
    "Table",
    "Timeline",
    "figure",
    "flatten",
    "fmt",
]

Cell: TypeAlias = str | int | float | None
Value: TypeAlias = float | int | None

# ------------------------------------------------------------------------------------- look

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CB6FA6", "#6B4A00", "#3D4652")
"""Series colours on a light page: Okabe and Ito's, the pale ones darkened to 3:1 on white."""

PALETTE_DARK = ("#3F9BD8", "#FF8533", "#2FD3A5", "#BF5F96", "#F5DF7A", "#F0F3F6")
"""The same hues for a dark page."""

_NAMES = tuple(f"c{i}" for i in range(1, len(PALETTE) + 1))

THEME: dict[str, str] = {
    "bg": "#ffffff",
    "ink": "#1f2933",
    "muted": "#52606d",
    "axis": "#7b8794",
    "grid": "#e4e7eb",
    **dict(zip(_NAMES, PALETTE, strict=True)),
}
"""Every colour by name, light. Each is also a CSS variable: ``--ss-ink``, ``--ss-c1``, ..."""

THEME_DARK: dict[str, str] = {
    "bg": "#121212",
    "ink": "#e6e9ed",
    "muted": "#a9b4c0",
    "axis": "#7d8a98",
    "grid": "#2b323b",
    **dict(zip(_NAMES, PALETTE_DARK, strict=True)),
}

# Where no style sheet sets the variables (a notebook, say, light or dark), text takes the
# colour of the text around it and the grid is a translucent grey.
_FALLBACK = {
    **THEME,
    "ink": "currentColor",
    "muted": "currentColor",
    "grid": "rgba(128,128,128,.25)",
}

MARKERS = ("circle", "square", "triangle", "diamond", "plus", "cross")
"""Marker of each series slot; matplotlib's are ``o s ^ D P X``."""

HATCHES = ("none", "diagonal", "dots", "grid", "horizontal", "back")
"""Hatch of each series slot, so that no figure depends on colour alone."""

WIDTH = 560
"""Default width in px: 16 px text is still 9 px when the picture shrinks to 320 px."""

_TEXT = 16
_TEXT_UNSCALED = 14  # a picture that scrolls never shrinks, so its text may be smaller
_FONT = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Style:
    """How one kind of thing looks: never by colour alone."""

    color: str
    hatch: str = "none"
    marker: str = "circle"
    height: float = 1.0
    hollow: bool = False


KINDS: dict[str, Style] = {
    "waiting": Style("axis", height=0.22),
    "prefill": Style("c2", "diagonal", "square"),
    "decode": Style("c1"),
    "idle": Style("axis", "back", hollow=True),
    "preempted": Style("c4", "grid", "diamond", height=0.6),
}
"""What a request can be doing, and how that looks in every figure."""


def style(key: int | str) -> Style:
    """Return the style of a series slot (1, 2, ...) or of a kind (``"prefill"``).

    Raises
    ------
    InputError
        If there is no such kind, or the slot is below 1.
    """
    if isinstance(key, str):
        if key not in KINDS:
            raise InputError(f"svg: no kind {key!r}; use one of {', '.join(KINDS)}, or a slot 1..")
        return KINDS[key]
    if key < 1:
        raise InputError(f"svg: series slots count from 1, not {key}")
    turn, i = divmod(key - 1, len(PALETTE))
    # From the seventh on colours come again, each with the next hatch and marker.
    j = (i + turn) % len(HATCHES)
    return Style(_NAMES[i], HATCHES[j], MARKERS[j])


def paint(name: str) -> str:
    """Return a theme colour as a CSS variable with its fallback."""
    return name if name == "none" else f"var(--ss-{name}, {_FALLBACK[name]})"


def flatten(svg: str, *, dark: bool = False) -> str:
    """Replace CSS variables by plain colours, for programs that know none (print, LaTeX)."""
    theme = THEME_DARK if dark else THEME
    return re.sub(r"var\(--ss-(\w+), [^()]*(?:\([^()]*\))?\)", lambda m: theme[m[1]], svg)


# ---------------------------------------------------------------------------------- numbers


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
    return f"{float(f'{x:.4g}'):.7f}".rstrip("0").rstrip(".")


def _exponent(x: float) -> int:
    # Through text, because log10 may differ in the last bit between C libraries.
    return int(f"{x:e}".split("e")[1])


def _times10(mantissa: int, exponent: int) -> float:
    return float(f"{mantissa}e{exponent}")


def linear_ticks(lo: float, hi: float, count: int = 5) -> list[float]:
    """Return about `count` (two or more) round numbers from `lo` to `hi`."""
    raw = (hi - lo) / max(count, 1)
    first = _exponent(raw)
    steps = ((m, e) for e in (first, first + 1) for m in (1, 2, 5))
    m, e = next((m, e) for m, e in steps if _times10(m, e) >= raw * (1 - 1e-9))
    step = _times10(m, e)
    start, stop = math.ceil(lo / step - 1e-9), math.floor(hi / step + 1e-9)
    if stop <= start:
        return linear_ticks(lo, hi, count + 1)
    return [_times10(i * m, e) for i in range(start, stop + 1)]


def log_ticks(lo: float, hi: float, count: int = 6) -> list[float]:
    """Return round numbers from `lo` to `hi` (both positive): decades, or 1-2-5, or finer."""
    decades = range(_exponent(lo) - 1, _exponent(hi) + 2)

    def within(mantissas: Iterable[int]) -> list[float]:
        every = [_times10(m, e) for e in decades for m in mantissas]
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


def _finite(values: Iterable[Value]) -> list[float]:
    return [float(v) for v in values if v is not None and math.isfinite(v)]


# ----------------------------------------------------------------------------------- markup


def esc(text: str) -> str:
    """Escape text for markup, and drop the control characters that XML forbids."""
    return html.escape(re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]", "", text), quote=True)


def element(tag: str, *children: str, **attributes: str | float | None) -> str:
    """Return one element; `children` are markup already, attributes are escaped here.

    ``_`` in an attribute's name stands for ``-``, a trailing one is dropped, and None leaves
    the attribute out.
    """
    parts = [tag]
    for name, value in attributes.items():
        if value is not None:
            text = value if isinstance(value, str) else num(value)
            parts.append(f'{name.rstrip("_").replace("_", "-")}="{esc(text)}"')
    inner = "".join(children)
    return f"<{' '.join(parts)}>{inner}</{tag}>" if inner else f"<{' '.join(parts)}/>"


def _hover(text: str) -> str:
    return element("title", esc(text)) if text else ""


def text_width(text: str, size: float) -> float:
    """Estimate the width of `text` in px: there are no font metrics here, so err upwards."""

    def em(c: str) -> float:
        if ord(c) > 0x2E7F:
            return 1.0  # Chinese and the like
        if c in "iljtfI.,:;'|! ()[]-":
            return 0.36
        if c in "mwMW@%":
            return 0.92
        return 0.68 if c.isupper() else 0.58

    return size * sum(em(c) for c in text)


def _wrap(text: str, width: float, size: float) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and text_width(f"{lines[-1]} {word}", size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def _marker_path(shape: str, x: float, y: float, r: float) -> str:
    def polygon(*points: tuple[float, float]) -> str:
        return "M" + "L".join(f"{num(x + r * a)} {num(y + r * b)}" for a, b in points) + "Z"

    if shape == "square":
        return polygon((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9))
    if shape == "triangle":
        return polygon((0, -1.2), (1.15, 0.85), (-1.15, 0.85))
    if shape == "diamond":
        return polygon((0, -1.3), (1.3, 0), (0, 1.3), (-1.3, 0))
    a, b = 0.42, 1.2
    plus = [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a)]
    plus += [(-p, -q) for p, q in plus]
    if shape == "plus":
        return polygon(*plus)
    if shape == "cross":
        return polygon(*(((p - q) * 0.7071, (p + q) * 0.7071) for p, q in plus))
    d = num(2 * r)
    return f"M{num(x - r)} {num(y)}a{num(r)} {num(r)} 0 1 0 {d} 0a{num(r)} {num(r)} 0 1 0 -{d} 0Z"


class Canvas:
    """Collects the elements of one SVG. Its ids all start with the figure's id."""

    def __init__(self, id: str, size: float = _TEXT) -> None:
        self.id, self.size = id, size
        self._parts: list[str] = []
        self._patterns: dict[tuple[str, str, bool], str] = {}
        self._clips: list[str] = []

    def put(self, tag: str, *children: str, **attributes: str | float | None) -> None:
        """Append an element (see `element`)."""
        self._parts.append(element(tag, *children, **attributes))

    def group(self, start: int, **attributes: str | float | None) -> None:
        """Put everything added since there were `start` elements into a group."""
        self._parts[start:] = [element("g", *self._parts[start:], **attributes)]

    def __len__(self) -> int:
        return len(self._parts)

    def line(
        self,
        x1: float,
        y1: float,
        x2: float,
        y2: float,
        color: str,
        width: float = 1,
        dash: str | None = None,
    ) -> None:
        """Draw a straight line."""
        stroke = paint(color)
        self.put(
            "line",
            x1=x1,
            y1=y1,
            x2=x2,
            y2=y2,
            stroke=stroke,
            stroke_width=width,
            stroke_dasharray=dash,
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        anchor: str | None = None,
        color: str = "ink",
        bold: bool = False,
    ) -> None:
        """Write one line of text with its baseline at `y`."""
        weight = "600" if bold else None
        fill = paint(color)
        self.put("text", esc(text), x=x, y=y, text_anchor=anchor, fill=fill, font_weight=weight)

    def block(self, x: float, y: float, w: float, h: float, look: Style, hover: str = "") -> None:
        """Draw a filled, hatched rectangle."""
        stroke = paint(look.color) if look.hollow else None
        fill = self.fill(look)
        self.put(
            "rect",
            _hover(hover),
            x=x,
            y=y,
            width=max(w, 0.6),
            height=max(h, 0),
            fill=fill,
            stroke=stroke,
            rx=min(1.5, w / 8),
        )

    def marker(
        self, x: float, y: float, look: Style, r: float = 4.5, hover: str = "", color: str = ""
    ) -> None:
        """Draw a marker with a thin rim, so that crowded ones stay apart."""
        self.put(
            "path",
            _hover(hover),
            d=_marker_path(look.marker, x, y, r),
            fill=paint(color or look.color),
            stroke=paint("bg"),
            stroke_width=1,
        )

    def path(
        self, d: str, *, stroke: str, width: float = 1, dash: str | None = None, hover: str = ""
    ) -> None:
        """Draw an open path."""
        self.put(
            "path",
            _hover(hover),
            d=d,
            fill="none",
            stroke=paint(stroke),
            stroke_width=width,
            stroke_dasharray=dash,
            stroke_linejoin="round",
        )

    def fill(self, look: Style) -> str:
        """Return the paint for a style, defining its hatch pattern on first use."""
        if look.hatch == "none":
            return "none" if look.hollow else paint(look.color)
        key = (look.color, look.hatch, look.hollow)
        name = f"{self.id}-{'-'.join(key[:2])}{'-hollow' * look.hollow}"
        if key not in self._patterns:
            back = "bg" if look.hollow else look.color
            fore = paint(look.color if look.hollow else "bg")
            lines = {
                "diagonal": "M-2 2L2 -2M0 8L8 0M6 10L10 6",
                "back": "M-2 6L2 10M0 0L8 8M6 -2L10 2",
                "horizontal": "M0 2H8M0 6H8",
                "grid": "M0 4H8M4 0V8",
                "dots": "M2 2h.01M6 6h.01",
            }[look.hatch]
            wide = 2.6 if look.hatch == "dots" else 1.3
            self._patterns[key] = element(
                "pattern",
                element("rect", width=8, height=8, fill=paint(back)),
                element(
                    "path",
                    d=lines,
                    stroke=fore,
                    stroke_width=wide,
                    stroke_linecap="round",
                    fill="none",
                ),
                id=name,
                width=8,
                height=8,
                patternUnits="userSpaceOnUse",
            )
        return f"url(#{name})"

    def clip(self, x: float, y: float, w: float, h: float) -> str:
        """Define a rectangle to clip by and return the reference to it."""
        name = f"{self.id}-clip{len(self._clips) + 1}"
        rect = element("rect", x=x, y=y, width=w, height=h)
        self._clips.append(element("clipPath", rect, id=name))
        return f"url(#{name})"

    def finish(self, width: float, height: float, title: str, desc: str, *, fluid: bool) -> str:
        """Return the SVG. A `fluid` one shrinks with its column, any other keeps its size."""
        names = f"{self.id}-title", f"{self.id}-desc"
        defs = [*self._patterns.values(), *self._clips]
        return element(
            "svg",
            element("title", esc(title), id=names[0]),
            element("desc", esc(desc), id=names[1]) if desc else "",
            element("defs", *defs) if defs else "",
            *self._parts,
            xmlns="http://www.w3.org/2000/svg",
            class_="ss-svg",
            width=width,
            height=height,
            viewBox=f"0 0 {num(width)} {num(height)}",
            role="img",
            aria_labelledby=" ".join(names[: 1 + bool(desc)]),
            font_family=_FONT,
            font_size=self.size,
            style="max-width:100%;height:auto" if fluid else "max-width:none",
        )


Glyph: TypeAlias = Callable[[Canvas, float, float], None]


def _legend(
    canvas: Canvas, items: Sequence[tuple[Glyph, str]], x: float, y: float, width: float
) -> float:
    """Draw legend rows from `y` down, wrapped at `width`, and return the height used."""
    size, pitch = canvas.size, canvas.size * 1.45
    left, top = x, y
    for glyph, label in items:
        w = 30 + text_width(label, size)
        if left > x and left + w > x + width:
            left, top = x, top + pitch
        glyph(canvas, left + 11, top + pitch / 2)
        canvas.text(left + 28, top + pitch / 2 + 0.35 * size, label)
        left += w + 14
    return top + pitch + 4 - y if items else 0.0


def _swatch(look: Style) -> Glyph:
    def draw(canvas: Canvas, x: float, y: float) -> None:
        h = 12 * look.height if look.height < 1 else 14
        canvas.block(x - 10, y - h / 2, 20, h, look)

    return draw


# ------------------------------------------------------------------------------------- axes

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
        seen = [v for v in _finite(values) if v > 0 or not log]
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
    steps = [_times10(m, e) for e in (_exponent(x) - 1, _exponent(x)) for m in (1, 2, 5)]
    return max(s for s in steps if s <= x * (1 + 1e-9))


def _nice_above(x: float) -> float:
    steps = [_times10(m, e) for e in (_exponent(x), _exponent(x) + 1) for m in (1, 2, 5)]
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
        if self.kind == "linear":
            part = (v - self.lo) / (self.hi - self.lo)
        else:
            low = math.log10(self.lo)
            part = (math.log10(v) - low) / (math.log10(self.hi) - low)
        return self.start + part * (self.stop - self.start)

    def ticks(self, count: int) -> list[tuple[float, str]]:
        """Return ticks and their labels."""
        make = {"linear": linear_ticks, "log": log_ticks, "log2": log2_ticks}[self.kind]
        values = make(self.lo, self.hi, count)
        return list(zip(values, tick_labels(values, log=self.kind != "linear"), strict=True))

    def place(self, x: Value) -> float | None:
        """Return the pixel of a value, or None where the axis has no place for it."""
        if x is None or not math.isfinite(x) or (self.kind != "linear" and x <= 0):
            return None
        return self(x)


def _axis(label: Axis | str) -> Axis:
    return Axis(label) if isinstance(label, str) else label


def _x_axis(
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


# ----------------------------------------------------------------------------------- panels


@dataclass(frozen=True, slots=True)
class Frame:
    """The room a panel gets: its width and margins in px, and perhaps the others' x axis."""

    width: float
    left: float
    right: float
    x_span: tuple[float, float] | None = None
    x_named: bool = True


class Panel:
    """Something that can draw itself in a frame."""

    scrolls = False
    min_width: float = 0
    title = ""

    def margins(self, width: float, size: float) -> tuple[float, float]:
        """Return the room needed left and right of the plot, in px."""
        raise NotImplementedError

    def x_span(self) -> tuple[float, float] | None:
        """Return the ends of the x axis, or None if there is none to share."""
        return None

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw from y = 0 down and return the height used, in px."""
        raise NotImplementedError

    def _title(self, canvas: Canvas) -> float:
        if not self.title:
            return 0.0
        canvas.text(0, canvas.size, self.title, bold=True)
        return canvas.size * 1.75


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
        if self.ghost:
            canvas.line(x - 11, y, x + 11, y, "axis", 2, "5 4")
        elif self.shape == "bars":
            _swatch(self.look)(canvas, x, y)
        else:
            if self.shape != "scatter":
                canvas.line(x - 11, y, x + 11, y, self.look.color, 2.5)
            canvas.marker(x, y, self.look)


@dataclass(frozen=True, slots=True)
class _Line:
    """A reference line across the plot."""

    at: float
    label: str

    def glyph(self, canvas: Canvas, x: float, y: float) -> None:
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
        self.x, self.y, self.title = _axis(x), _axis(y), title
        self.height, self.legend, self.stacked = height, legend, stacked
        self._series: list[_Series] = []
        self._hlines: list[_Line] = []
        self._vlines: list[_Line] = []

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
            Draw it as the default run: grey, dashed, behind the others, taking up no slot.
        lo, hi : iterables of numbers
            An error band around the line, one pair for each point.

        Raises
        ------
        InputError
            If the lengths differ or there is no such colour.
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
        self._hlines.append(_Line(at, label))

    def vline(self, at: float, label: str = "") -> None:
        """Add a vertical reference line; its label stands above the plot."""
        self._vlines.append(_Line(at, label))

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

    def _named(self) -> list[tuple[_Series | _Line, str]]:
        items: list[tuple[_Series | _Line, str]] = []
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
        lines = all(isinstance(i, _Line) or i.shape in ("line", "step") for i, _ in items)
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
            top += _legend(canvas, [(i.glyph, n) for i, n in named], 0, top, frame.width)
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
            below = _x_axis(canvas, x, self.x.label, top, bottom, named=frame.x_named)

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
        if not any(_finite(s.ys) for s in self._series) and not self._hlines:
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
            lines = _wrap(name, room, size)
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
        labels = {k: (high, fmt(_tidy(value))) for k, (high, value) in tops.items()}
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
            if py is None:
                continue
            values = f"{_with_unit(s.xs[i], self.x)}, {_with_unit(s.ys[i], self.y)}"
            hover = f"{s.name}: {values}" if s.name else values
            if stride and i % stride == stride // 2:
                r = 3.5 if s.shape == "scatter" and len(places) > 60 else 4.5
                canvas.marker(px, py, s.look, r, hover, "axis" if s.ghost else "")
            elif len(places) <= 120:
                # Nothing to see, but a place to point at.
                canvas.put(
                    "circle", _hover(hover), cx=px, cy=py, r=6, fill="none", pointer_events="all"
                )

    def _labels(
        self, canvas: Canvas, x: Scale, y: Scale, named: Sequence[tuple[_Series | _Line, str]]
    ) -> None:
        """Write names beside the ends of their lines, apart from each other."""
        pitch = canvas.size * 1.2
        ends: list[tuple[float, float, _Series | _Line, str]] = []
        for item, name in named:
            if isinstance(item, _Line):
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
            color = "axis" if isinstance(item, _Line) or item.ghost else item.look.color
            if abs(at - py) > 2 or px < x.stop - 2:
                bends = [(px + 6, py), (x.stop + 6, py), (x.stop + 17, at)]
                canvas.path(_path(bends), stroke=color)
            if isinstance(item, _Line):
                canvas.line(x.stop + 19, at, x.stop + 33, at, "ink", 2, "2 3")
            elif item.ghost:
                canvas.line(x.stop + 19, at, x.stop + 33, at, "axis", 2, "5 4")
            else:
                canvas.marker(x.stop + 26, at, item.look)
            canvas.text(x.stop + 37, at + 0.35 * canvas.size, name)


def _with_unit(v: Value, axis: Axis) -> str:
    return f"{fmt(v)} {axis.unit}" if axis.unit else fmt(v)


def _tidy(x: float) -> Value:
    return round(x) if x == round(x) else x


def _totals(bars: Sequence[_Series], *, ghost: bool) -> list[Value]:
    stacks = zip(*(s.ys for s in bars if s.ghost is ghost), strict=True)
    return [sum(_finite(stack)) for stack in stacks]


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
        # Neighbours that are too close become one group, centred on what they wanted.
        while len(groups) > 1 and first(groups[-2]) + pitch * len(groups[-2]) > first(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    return [first(group) + pitch * i for group in groups for i in range(len(group))]


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
        self._vlines: list[_Line] = []

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
        self._vlines.append(_Line(at, label))

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
        top += _legend(canvas, self._key(), 0, top, 330)
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
        below = _x_axis(canvas, x, self.x.label, top - 4, bottom, named=frame.x_named)
        for i, row in enumerate(self._rows):
            middle = top + pitch * (i + 0.5)
            canvas.text(left - 10, middle + 0.35 * size, row.label, anchor="end")
            for s in row.segments:
                look = style(s.kind)
                h = max(3.0, bar * look.height)
                times = f"{fmt(s.start)} to {fmt(s.end)} {self.unit} ({fmt(s.end - s.start)})"
                hover = f"{row.label}: {s.kind}, {times}" + (f"; {s.note}" if s.note else "")
                a, b = x(s.start), x(s.end)
                # A hair between neighbours, where there is room for it.
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
        items = [(_swatch(look), kind) for kind, look in KINDS.items() if kind in used]
        if any(r.arrival is not None for r in self._rows):
            items.append((lambda c, x, y: _arrival(c, x, y, 14), "arrival"))
        if any(r.first_token is not None for r in self._rows):
            items.append((lambda c, x, y: _first_token(c, x, y, 14), "first token"))
        return items


def _arrival(canvas: Canvas, x: float, y: float, bar: float, hover: str = "") -> None:
    h = bar / 2
    path = f"M{num(x)} {num(y - h)}V{num(y + h)}M{num(x)} {num(y - h)}l6 3.5l-6 3.5Z"
    ink = paint("ink")
    canvas.put("path", _hover(hover), d=path, fill=ink, stroke=ink, stroke_width=1.5)


def _first_token(canvas: Canvas, x: float, y: float, bar: float, hover: str = "") -> None:
    canvas.put(
        "circle",
        _hover(hover),
        cx=x,
        cy=y,
        r=min(5, bar / 2 - 2),
        fill=paint("bg"),
        stroke=paint("ink"),
        stroke_width=2,
    )


class BlockMap(Panel):
    """A pool of blocks as a grid of cells, coloured by owner.

    Parameters
    ----------
    owners : sequence of str or None
        Who holds each block; None for a free one.
    used : sequence of float, optional
        Filled part of each block, 0 to 1; the rest of a held block is drawn hollow.
    title : str
        A line above the grid.
    slots : mapping of str to int, optional
        Series slot of each owner, so that owners keep their looks from one picture to the
        next; in order of appearance if not given.
    columns : int, optional
        Cells in a row; from the width if not given.

    Raises
    ------
    InputError
        If `used` has another length than `owners`, or a value outside 0 to 1.
    """

    def __init__(
        self,
        owners: Iterable[str | None],
        *,
        used: Iterable[float] | None = None,
        title: str = "",
        slots: Mapping[str, int] | None = None,
        columns: int | None = None,
    ) -> None:
        self.owners, self.title, self.columns = list(owners), title, columns
        self.used = [1.0] * len(self.owners) if used is None else list(used)
        if len(self.used) != len(self.owners) or not all(0 <= u <= 1 for u in self.used):
            raise InputError("svg: a block map needs one used part, 0 to 1, for each block")
        held = list(dict.fromkeys(o for o in self.owners if o is not None))
        given = dict(slots or {})
        free = (i for i in range(1, len(held) + len(given) + 1) if i not in given.values())
        self._looks = {o: style(given[o] if o in given else next(free)) for o in held}

    def margins(self, width: float, size: float) -> tuple[float, float]:
        """Return nothing: the grid may use the whole width."""
        return 0.0, 0.0

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw the map and return its height, in px."""
        top = self._title(canvas)
        free = self.owners.count(None)
        empty = Style("axis", hollow=True)
        items: list[tuple[Glyph, str]] = [
            (_swatch(look), f"{owner} ({self.owners.count(owner)})")
            for owner, look in self._looks.items()
        ]
        items += [(_swatch(empty), f"free ({free})")] if free else []
        top += _legend(canvas, items, 0, top, frame.width) + 4
        room = frame.width - frame.left - 2
        count = max(len(self.owners), 1)
        sizes = (32, 28, 24, 20, 16, 13, 11, 9)
        cell: float = next((c for c in sizes if math.ceil(count / (room // c)) * c <= 260), 8)
        if self.columns:
            cell = min(32.0, room / self.columns)
        columns = self.columns or int(room // cell)
        gap = 3 if cell > 16 else 1.5
        for i, (owner, used) in enumerate(zip(self.owners, self.used, strict=True)):
            row, column = divmod(i, columns)
            x, y, side = frame.left + 1 + column * cell, top + row * cell, cell - gap
            if owner is None:
                canvas.block(x, y, side, side, empty, f"block {i}: free")
                continue
            look = self._looks[owner]
            full = "" if used == 1 else f", {fmt(100 * used)} % used"
            text = f"block {i}: {owner}{full}"
            if used < 1:
                canvas.block(x, y, side, side, Style(look.color, hollow=True), text)
            canvas.block(x, y + side * (1 - used), side, side * used, look, text)
        return top + math.ceil(count / columns) * cell + 4


@dataclass(frozen=True, slots=True)
class Part:
    """A share of a budget: whose, how much of it, and a slot or kind for its looks."""

    label: str
    amount: float
    look: int | str


class BudgetBar(Panel):
    """What a budget is spent on: a bar of parts against a limit.

    Parameters
    ----------
    parts : iterable of Part
        From left to right; the legend adds up those of one kind.
    limit : float
        The budget.
    unit : str
        Unit of amounts and limit, for the axis and hover texts.
    title : str
        A line above the bar.
    """

    def __init__(
        self, parts: Iterable[Part], limit: float, *, unit: str = "tokens", title: str = ""
    ) -> None:
        self.parts, self.limit, self.unit, self.title = list(parts), limit, unit, title
        for p in self.parts:
            style(p.look)
            if not (math.isfinite(p.amount) and p.amount >= 0):
                raise InputError(f"svg: part {p.label!r} must be zero or more, not {p.amount}")
        if not (math.isfinite(limit) and limit > 0):
            raise InputError(f"svg: a budget's limit must be above zero, not {limit}")

    def margins(self, width: float, size: float) -> tuple[float, float]:
        """Return the room for half a tick label at each end, in px."""
        return 10.0, 24.0

    def draw(self, canvas: Canvas, frame: Frame) -> float:
        """Draw the bar and return its height, in px."""
        size, unit = canvas.size, f" {self.unit}" if self.unit else ""
        top = self._title(canvas)
        spent: dict[int | str, float] = {}
        for p in self.parts:
            spent[p.look] = spent.get(p.look, 0) + p.amount
        first = {p.look: p.label for p in reversed(self.parts)}
        items: list[tuple[Glyph, str]] = [
            (_swatch(style(k)), f"{k if isinstance(k, str) else first[k]} {fmt(_tidy(v))}")
            for k, v in spent.items()
        ]
        top += _legend(canvas, items, 0, top, frame.width)
        total = sum(p.amount for p in self.parts)
        left, right = frame.left, frame.width - frame.right
        x = Scale("linear", 0.0, max(total, self.limit), left, right)
        text = f"limit {fmt(_tidy(self.limit))}{unit}"
        half = text_width(text, size) / 2
        place = max(half, min(x(self.limit), frame.width - half))
        canvas.text(place, top + size, text, anchor="middle")
        top += size * 1.5
        bottom = top + 38
        names = any(self._fits(p, x, size) for p in self.parts)
        below = _x_axis(canvas, x, self.unit, top, bottom + size * 1.3 * names, named=frame.x_named)
        used = 0.0
        for p in self.parts:
            a, b = x(used), x(used + p.amount)
            hover = f"{p.label}: {fmt(_tidy(p.amount))}{unit}"
            canvas.block(a, top + 4, b - a - (1 if b - a > 3 else 0), 30, style(p.look), hover)
            if self._fits(p, x, size):
                base = bottom + size * 0.95
                canvas.text((a + b) / 2, base, p.label, anchor="middle", color="muted")
            used += p.amount
        canvas.line(x(self.limit), top - 2, x(self.limit), bottom, "ink", 2.5)
        return bottom + size * 1.3 * names + below

    def _fits(self, part: Part, x: Scale, size: float) -> bool:
        return text_width(part.label, size) + 6 <= x(part.amount) - x(0)


# ----------------------------------------------------------------------------------- figure


class Table(NamedTuple):
    """The numbers of a picture. The first column names the row."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def to_html(self) -> str:
        """Return an HTML table."""
        head = "".join(element("th", esc(h), scope="col") for h in self.header)
        body = []
        for name, *cells in self.rows:
            row = element("th", esc(fmt(name)) or " ", scope="row")
            row += "".join(element("td", esc(fmt(c)) or " ") for c in cells)
            body.append(element("tr", row))
        return element("table", element("thead", element("tr", head)), element("tbody", *body, " "))

    def to_text(self) -> str:
        """Return the table in columns of plain text."""
        rows = [list(self.header), *([fmt(c) for c in row] for row in self.rows)]
        widths = [max(len(r[i]) for r in rows) for i in range(len(self.header))]
        lines = []
        for row in rows:
            cells = [
                c.rjust(w) if i else c.ljust(w)
                for i, (c, w) in enumerate(zip(row, widths, strict=True))
            ]
            lines.append("  ".join(cells).rstrip())
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Figure:
    """A picture and what it says.

    Attributes
    ----------
    svg : str
        The picture.
    summary : str
        One sentence with the conclusion, for those who see the picture and those who do not.
    table : Table or None
        The numbers behind the picture.
    id : str
        What every id inside the picture starts with.
    title : str
        Name of the picture for screen readers.
    scroll : bool
        Whether the picture keeps its size and scrolls sideways in a box of its own.
    """

    svg: str
    summary: str = ""
    table: Table | None = None
    id: str = ""
    title: str = ""
    scroll: bool = False

    def with_id(self, id: str) -> Figure:
        """Return the same figure under another id, so that a page can show it twice."""
        if not self.id or id == self.id:
            return self
        _check_id(id)
        # Quotes are escaped in all text, so these can only be attributes.
        old = re.escape(self.id)
        svg = re.sub(rf'((?:\sid="|="url\(#)){old}-', rf"\g<1>{id}-", self.svg)
        svg = re.sub(
            r'(\saria-labelledby=")([^"]*)',
            lambda m: m[1] + re.sub(rf"(^|\s){old}-", rf"\g<1>{id}-", m[2]),
            svg,
        )
        return replace(self, svg=svg, id=id)

    def picture_html(self) -> str:
        """Return the picture, in a box that scrolls if it has to."""
        inner = self.svg
        if self.scroll:
            inner = element(
                "div",
                inner,
                class_="live-scroll",
                tabindex="0",
                role="region",
                aria_label=f"{self.title or 'Picture'} (scrolls sideways)",
                style="overflow-x:auto",
            )
        return element("div", inner, class_="live-picture")

    def numbers_html(self) -> str:
        """Return the summary and, behind a disclosure, the table."""
        parts = []
        if self.summary:
            parts.append(element("p", esc(self.summary), class_="live-summary"))
        if self.table is not None:
            parts.append(
                element(
                    "details",
                    element("summary", "Table of the numbers"),
                    element(
                        "div",
                        self.table.to_html(),
                        class_="live-table",
                        tabindex="0",
                        role="region",
                        aria_label=f"Numbers of: {self.title or 'the picture'}",
                        style="overflow-x:auto",
                    ),
                    class_="live-numbers",
                )
            )
        return "\n".join(parts)

    def to_html(self) -> str:
        """Return picture, summary and table."""
        return f"{self.picture_html()}\n{self.numbers_html()}".strip()

    def to_text(self) -> str:
        """Return summary and table as plain text."""
        table = self.table.to_text() if self.table is not None else ""
        return "\n\n".join(t for t in (self.summary or self.title, table) if t) or "(a picture)"

    def __repr__(self) -> str:
        return f"Figure({self.id or self.title!r})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        body = f'<div class="live-fig">{self.to_html()}</div>'
        return {"text/html": body, "text/plain": self.to_text()}


def _check_id(id: str) -> None:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", id):
        raise InputError(
            f"svg: {id!r} cannot be a figure's id; use letters, digits, - and _, a letter first"
        )


def figure(
    id: str,
    *panels: Panel,
    title: str,
    summary: str = "",
    table: tuple[Sequence[str], Sequence[Sequence[Cell]]] | None = None,
    width: float = WIDTH,
    share_x: bool = False,
) -> Figure:
    """Stack panels into one picture.

    Parameters
    ----------
    id : str
        Unique on the page; every id inside the picture starts with it.
    *panels : Panel
        From top to bottom.
    title : str
        Name of the picture for screen readers; panels carry the visible titles.
    summary : str
        One sentence that states the conclusion, with its number.
    table : (header, rows), optional
        The numbers shown; rows of strings and numbers, as long as the header.
    width : float
        Width in px; a timeline can make it wider.
    share_x : bool
        Whether all panels with an x axis share its ends, labelled once at the bottom.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If the id is none, there are no panels, or a row of the table is too long or short.
    """
    _check_id(id)
    if not panels:
        raise InputError(f"svg: figure {id!r} has no panels; give one or more")
    data = Table(*table) if table is not None else None
    for row in data.rows if data else ():
        if data and len(row) != len(data.header):
            raise InputError(
                f"svg: a row of figure {id!r} has {len(row)} cells under a header of "
                f"{len(data.header)}; give one cell for each column"
            )
    scroll = any(p.scrolls for p in panels)
    canvas = Canvas(id, _TEXT_UNSCALED if scroll else _TEXT)
    width = max(width, *(p.min_width for p in panels))
    margins = [p.margins(width, canvas.size) for p in panels]
    # Grids without axes stay at the left edge; plots line up with each other.
    left, right = max(m[0] for m in margins), max(m[1] for m in margins)
    spans = [s for p in panels if (s := p.x_span()) is not None]
    span = None
    if share_x and spans:
        span = min(s[0] for s in spans), max(s[1] for s in spans)
    last = max((i for i, p in enumerate(panels) if p.x_span() is not None), default=-1)
    height = 4.0
    for i, panel in enumerate(panels):
        edge = (left, right) if margins[i][0] else margins[i]
        named = not share_x or i >= last or panel.x_span() is None
        start = len(canvas)
        used = panel.draw(canvas, Frame(width, *edge, span, named))
        canvas.group(start, transform=f"translate(0,{num(height)})")
        height += used + (20 if i + 1 < len(panels) else 4)
    picture = canvas.finish(width, height, title, summary, fluid=not scroll)
    return Figure(picture, summary, data, id, title, scroll)
