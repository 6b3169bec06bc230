"""A map of memory blocks, and a bar of parts that share a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..errors import InputError
from .axes import Scale, x_axis
from .canvas import Canvas, Glyph, legend, swatch, text_width
from .chart import tidy
from .look import Style, style
from .numbers import fmt
from .panel import Frame, Panel


class BlockMap(Panel):
    """A pool of blocks as a grid of cells, colored by owner.

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
            (swatch(look), f"{owner} ({self.owners.count(owner)})")
            for owner, look in self._looks.items()
        ]
        items += [(swatch(empty), f"free ({free})")] if free else []
        top += legend(canvas, items, 0, top, frame.width) + 4
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
            (swatch(style(k)), f"{k if isinstance(k, str) else first[k]} {fmt(tidy(v))}")
            for k, v in spent.items()
        ]
        top += legend(canvas, items, 0, top, frame.width)
        total = sum(p.amount for p in self.parts)
        left, right = frame.left, frame.width - frame.right
        x = Scale("linear", 0.0, max(total, self.limit), left, right)
        text = f"limit {fmt(tidy(self.limit))}{unit}"
        half = text_width(text, size) / 2
        place = max(half, min(x(self.limit), frame.width - half))
        canvas.text(place, top + size, text, anchor="middle")
        top += size * 1.5
        bottom = top + 38
        names = any(self._fits(p, x, size) for p in self.parts)
        below = x_axis(canvas, x, self.unit, top, bottom + size * 1.3 * names, named=frame.x_named)
        used = 0.0
        for p in self.parts:
            a, b = x(used), x(used + p.amount)
            hover = f"{p.label}: {fmt(tidy(p.amount))}{unit}"
            canvas.block(a, top + 4, b - a - (1 if b - a > 3 else 0), 30, style(p.look), hover)
            if self._fits(p, x, size):
                base = bottom + size * 0.95
                canvas.text((a + b) / 2, base, p.label, anchor="middle", color="muted")
            used += p.amount
        canvas.line(x(self.limit), top - 2, x(self.limit), bottom, "ink", 2.5)
        return bottom + size * 1.3 * names + below

    def _fits(self, part: Part, x: Scale, size: float) -> bool:
        return text_width(part.label, size) + 6 <= x(part.amount) - x(0)
