"""What every panel has: margins, a frame, a legend, rows of numbers."""

from __future__ import annotations

from dataclasses import dataclass

from .canvas import Canvas


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
