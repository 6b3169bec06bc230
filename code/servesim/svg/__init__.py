"""Pictures as SVG strings: the drawing primitives that all live figures are made with.

Three ideas. A *panel* (`Chart`, `Timeline`, `BlockMap`, `BudgetBar`) holds data and can draw
itself. `figure` stacks panels into one picture, with their left and right edges aligned. The
`Figure` it returns carries the picture, a sentence that says what the picture shows, and the
table of its numbers.

Standard library only, because the same code runs in the browser, and deterministic: the same
input gives the same bytes on every machine, so a page can be compared with a test.
"""

from .axes import Axis, ScaleKind
from .blocks import BlockMap, BudgetBar, Part
from .canvas import Canvas, element, esc, prose, text_width
from .chart import Chart
from .look import (
    HATCHES,
    KINDS,
    MARKERS,
    PALETTE,
    PALETTE_DARK,
    THEME,
    THEME_DARK,
    WIDTH,
    Cell,
    Style,
    Value,
    flatten,
    paint,
    style,
)
from .numbers import fmt, linear_ticks, log2_ticks, log_ticks, num, tick_labels
from .panel import Panel
from .stack import Figure, Table, figure
from .timeline import Segment, Timeline

__all__ = [
    "HATCHES",
    "KINDS",
    "MARKERS",
    "PALETTE",
    "PALETTE_DARK",
    "THEME",
    "THEME_DARK",
    "WIDTH",
    "Axis",
    "BlockMap",
    "BudgetBar",
    "Canvas",
    "Cell",
    "Chart",
    "Figure",
    "Panel",
    "Part",
    "ScaleKind",
    "Segment",
    "Style",
    "Table",
    "Timeline",
    "Value",
    "element",
    "esc",
    "figure",
    "flatten",
    "fmt",
    "linear_ticks",
    "log2_ticks",
    "log_ticks",
    "num",
    "paint",
    "prose",
    "style",
    "text_width",
    "tick_labels",
]
