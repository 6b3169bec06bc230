"""What the chapters need around the simulator, and nothing more.

These wrappers also work where the book's own tools are missing, as in a browser: the chapter
goes on without them.
"""

from __future__ import annotations

from .compare import html_table, text_table


class Told:
    """A figure as it is to be printed in the text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def glue(name: str, value: float | str, form: str = "") -> None:
    """Make a computed figure available to the chapter's text as ``{glue:text}`name```.

    Parameters
    ----------
    name : str
        Unique in the chapter.
    value : float or str
    form : str
        How to print it: a format specification such as ``".1f"`` or ``",d"``.
    """
    told = Told(format(value, form))
    try:
        from myst_nb import glue as myst_glue
    except ImportError:  # outside the book's build: show it where it was computed
        print(f"{name}: {told}")
    else:
        myst_glue(name, told, display=False)


class Table:
    """Rows of text with a header; shows as a table in a notebook and in a terminal."""

    def __init__(self, rows: list[list[str]]) -> None:
        self.rows = rows

    def __repr__(self) -> str:
        return "\n".join(text_table(self.rows))

    def _repr_html_(self) -> str:
        return html_table(self.rows)


def table(rows: list[dict[str, object]], forms: dict[str, str] | None = None) -> Table:
    """Return a table of records: one row each, the first one's keys as the header.

    Parameters
    ----------
    rows : list of dict
    forms : dict, optional
        Format specification by column.
    """
    forms = forms or {}
    header = list(rows[0])
    body = [[format(row[name], forms.get(name, "")) for name in header] for row in rows]
    return Table([header, *body])
