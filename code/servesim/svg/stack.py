"""A figure: panels stacked into one picture, its sentence and its table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from ..output import check_writable, write_whole
from .canvas import Canvas, element, esc
from .look import TEXT, TEXT_UNSCALED, WIDTH, Cell, flatten
from .numbers import fmt, num
from .panel import Frame, Panel


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
    limits : mapping of str to int
        Where a control must end (see `explore.Steps`), if that depends on the others.
    """

    svg: str
    summary: str = ""
    table: Table | None = None
    id: str = ""
    title: str = ""
    scroll: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)

    def with_id(self, id: str) -> Figure:
        """Return the same figure under another id, so that a page can show it twice."""
        if not self.id or id == self.id:
            return self
        _check_id(id)
        # Quotes are escaped in all text, so these can only be attributes.
        svg = self.svg
        for start in (' id="', '="url(#'):
            svg = svg.replace(f"{start}{self.id}-", f"{start}{id}-")
        svg = re.sub(
            r'aria-labelledby="([^"]*)"',
            lambda m: re.sub(rf'(?<=["\s]){re.escape(self.id)}-', f"{id}-", m[0]),
            svg,
        )
        return replace(self, svg=svg, id=id)

    def save(self, file: str | Path, *, dark: bool = False) -> Path:
        """Write the picture to a file, for slides or print.

        An SVG is written with plain colors, which every program understands. Anything else is
        made from it by ``rsvg-convert`` (librsvg). The background is transparent.

        Parameters
        ----------
        file : str or Path
            A name that ends in .svg, .pdf or .png. A file that is there is replaced.
        dark : bool
            Colors for a dark background.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InputError
            If the name ends otherwise, the file cannot be written, or ``rsvg-convert`` is missing.
        """
        import shutil
        import subprocess  # not at the top: a page draws figures and saves none

        path = Path(file)
        kind = path.suffix.lower().removeprefix(".")
        if kind not in ("svg", "pdf", "png"):
            raise InputError(f"save {file}: name a file that ends in .svg, .pdf or .png")
        check_writable(path, "save")
        text = flatten(self.svg, dark=dark)
        if kind == "svg":
            write_whole(path, text + "\n")
            return path
        program = shutil.which("rsvg-convert")
        if program is None:
            raise InputError(
                f"save {file}: a {kind.upper()} needs rsvg-convert (Debian: librsvg2-bin, "
                "macOS: brew install librsvg); without it save an .svg"
            )
        scale = ["--zoom", "3"] if kind == "png" else []  # sharp on a projector
        part = path.with_name(path.name + ".part")
        command = [program, "--format", kind, *scale, "--output", str(part.resolve())]
        try:
            done = subprocess.run(command, input=text.encode(), capture_output=True)
            if done.returncode:
                said = done.stderr.decode("utf-8", "replace").strip()
                raise InputError(f"save {file}: rsvg-convert failed: {said}")
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        return path

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
        table = self.table_html()
        if table:
            named = element("summary", "Table of the numbers")
            table = element("details", named, table, class_="live-numbers")
        return "\n".join(filter(None, (self.summary_html(), table)))

    def summary_html(self) -> str:
        """Return the summary as a paragraph, or nothing."""
        return element("p", esc(self.summary), class_="live-summary") if self.summary else ""

    def table_html(self) -> str:
        """Return the table in a box that scrolls if it has to, or nothing."""
        if self.table is None:
            return ""
        return element(
            "div",
            self.table.to_html(),
            class_="live-table",
            tabindex="0",
            role="region",
            aria_label=f"Numbers of: {self.title or 'the picture'}",
            style="overflow-x:auto",
        )

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
    limits: Mapping[str, int] | None = None,
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
        Whether all panels with an x axis share its ends, labeled once at the bottom.
    limits : mapping of str to int, optional
        Where a control must end, by its name.

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
    canvas = Canvas(id, TEXT_UNSCALED if scroll else TEXT)
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
    return Figure(picture, summary, data, id, title, scroll, dict(limits or {}))
