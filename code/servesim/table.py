"""Tables of figures, as text and as HTML."""

from __future__ import annotations

from collections.abc import Sequence

from .svg import prose


def told(value: float | None, form: str) -> str:
    """Format a figure; one that does not exist is a dash."""
    return "-" if value is None else format(value, form)


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of text: the first column to the left, figures to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def html_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows of text, the first one a header, as an HTML table; `code` as code."""
    header, *body = rows
    # An empty corner is no header: a screen reader would announce it as one without a name.
    head = "".join(
        f'<th scope="col">{prose(cell)}</th>' if cell else "<td></td>" for cell in header
    )
    lines = ("".join(f"<td>{prose(cell)}</td>" for cell in row) for row in body)
    return (
        f"<table><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(f'<tr>{line}</tr>' for line in lines)}</tbody></table>"
    )
