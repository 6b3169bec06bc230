"""Markup: elements, text, and the canvas that panels draw on."""

from __future__ import annotations

import functools
import html
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from .look import FONT, TEXT, Style, paint
from .numbers import num

_FORBIDDEN = r"\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff"
_forbidden, _special = re.compile(f"[{_FORBIDDEN}]"), re.compile(f"[{_FORBIDDEN}&<>\"']")


def esc(text: str) -> str:
    """Escape text for markup, and drop the characters that XML forbids."""
    if not _special.search(text):  # nearly all: a figure has thousands
        return text
    return html.escape(_forbidden.sub("", text), quote=True)


def prose(text: str) -> str:
    """Escape a sentence for markup; what stands between backticks is shown as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", esc(text))


def element(tag: str, *children: str, **attributes: str | float | None) -> str:
    """Return one element; `children` are markup already, attributes are escaped here.

    ``_`` in an attribute's name stands for ``-``, a trailing one is dropped, and None leaves
    the attribute out.
    """
    parts = [tag]
    for name, value in attributes.items():
        if value is not None:
            text = esc(value) if isinstance(value, str) else num(value)
            parts.append(f'{_attribute(name)}="{text}"')
    inner = "".join(children)
    return f"<{' '.join(parts)}>{inner}</{tag}>" if inner else f"<{' '.join(parts)}/>"


@functools.cache
def _attribute(name: str) -> str:
    return name.rstrip("_").replace("_", "-")


def tooltip(text: str) -> str:
    """Return the hover text of an element."""
    return f"<title>{esc(text)}</title>" if text else ""


@functools.lru_cache(maxsize=1024)
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


def wrap(text: str, width: float, size: float) -> list[str]:
    """Break a text into lines of at most `width` px."""
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

    def __init__(self, id: str, size: float = TEXT) -> None:
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
            tooltip(hover),
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
            tooltip(hover),
            d=_marker_path(look.marker, x, y, r),
            fill=paint(color or look.color),
            stroke=paint("bg"),
            stroke_width=1,
        )

    def spot(self, x: float, y: float, hover: str) -> None:
        """Put down a place to point at, with nothing to see."""
        # Written out, for there are many of them.
        self._parts.append(
            f'<circle cx="{num(x)}" cy="{num(y)}" r="6" fill="none" pointer-events="all">'
            f"{tooltip(hover)}</circle>"
        )

    def path(
        self, d: str, *, stroke: str, width: float = 1, dash: str | None = None, hover: str = ""
    ) -> None:
        """Draw an open path."""
        self.put(
            "path",
            tooltip(hover),
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
            font_family=FONT,
            font_size=self.size,
            style="max-width:100%;height:auto" if fluid else "max-width:none",
        )


Glyph: TypeAlias = Callable[[Canvas, float, float], None]


def legend(
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


def swatch(look: Style) -> Glyph:
    """Return what draws a sample of a style in the legend."""

    def draw(canvas: Canvas, x: float, y: float) -> None:
        h = 12 * look.height if look.height < 1 else 14
        canvas.block(x - 10, y - h / 2, 20, h, look)

    return draw
