"""How things look: colors of both themes, markers, hatches, kinds."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TypeAlias

from ..errors import InputError

Cell: TypeAlias = str | int | float | None
Value: TypeAlias = float | int | None

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CB6FA6", "#6B4A00", "#3D4652")
"""Series colors on a light page: Okabe and Ito's, the pale ones darkened to 3:1 on white."""

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
"""Every color by name, light. Each is also a CSS variable: ``--ss-ink``, ``--ss-c1``, ..."""

THEME_DARK: dict[str, str] = {
    "bg": "#121212",
    "ink": "#e6e9ed",
    "muted": "#a9b4c0",
    "axis": "#7d8a98",
    "grid": "#2b323b",
    **dict(zip(_NAMES, PALETTE_DARK, strict=True)),
}

# Where no style sheet sets the variables (a notebook, say, light or dark), text takes the
# color of the text around it and the grid is a translucent gray.
_FALLBACK = {
    **THEME,
    "ink": "currentColor",
    "muted": "currentColor",
    "grid": "rgba(128,128,128,.25)",
}

MARKERS = ("circle", "square", "triangle", "diamond", "plus", "cross")
"""Marker of each series slot; matplotlib's are ``o s ^ D P X``."""

HATCHES = ("none", "diagonal", "dots", "grid", "horizontal", "back")
"""Hatch of each series slot, so that no figure depends on color alone."""

WIDTH = 560
"""Default width in px: 16 px text is still 9 px when the picture shrinks to 320 px."""

TEXT = 16
TEXT_UNSCALED = 14  # a picture that scrolls never shrinks, so its text may be smaller
FONT = "system-ui, 'Segoe UI', Roboto, Helvetica, Arial, sans-serif"


@dataclass(frozen=True, slots=True)
class Style:
    """How one kind of thing looks: never by color alone."""

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


@functools.lru_cache(maxsize=128)
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
    # From the seventh on colors come again, each with the next hatch and marker.
    j = (i + turn) % len(HATCHES)
    return Style(_NAMES[i], HATCHES[j], MARKERS[j])


@functools.cache
def paint(name: str) -> str:
    """Return a theme color as a CSS variable with its fallback."""
    return name if name == "none" else f"var(--ss-{name}, {_FALLBACK[name]})"


def flatten(svg: str, *, dark: bool = False) -> str:
    """Replace CSS variables by plain colors, for programs that know none (print, LaTeX)."""
    theme = THEME_DARK if dark else THEME
    return re.sub(r"var\(--ss-(\w+), [^()]*(?:\([^()]*\))?\)", lambda m: theme[m[1]], svg)
