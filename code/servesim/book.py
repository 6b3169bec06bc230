"""What the chapters need around the simulator, and nothing more.

These wrappers also work where the book's own tools are missing, as in a browser: the chapter
goes on without them.
"""

from __future__ import annotations

import inspect
import itertools
import subprocess
import textwrap
from pathlib import Path

from .checks import file_name
from .errors import InputError
from .table import html_table, text_table


class Told:
    """A figure as it is to be printed in the text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return repr(self.text)  # quoted: MyST-NB would read 1.00 as a number and print 1.0


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
        print(f"{name}: {told.text}")
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


class Source:
    """Lines of code, shown as they are."""

    def __init__(self, code: str) -> None:
        self.code = code

    def __repr__(self) -> str:
        return self.code

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.code}\n```"


def source(thing: object, first: str = "", last: str = "") -> Source:
    """Show the code of a function, method or class of this package, or some lines of it.

    Parameters
    ----------
    thing : function, method or class
    first, last : str
        Text in the first and in the last line to show; from the start or to the end if empty.

    Raises
    ------
    InputError
        If no such line is there: the code has changed, and the page has to.
    """
    lines = textwrap.dedent(inspect.getsource(thing)).splitlines()  # type: ignore[arg-type]
    start = next((i for i, line in enumerate(lines) if first in line), None)
    stop = next((i for i, line in enumerate(lines) if last in line and i >= (start or 0)), None)
    if start is None or stop is None:
        missing = first if start is None else last
        raise InputError(f"source: no line of {thing!r} holds {missing!r} (any more)")
    shown = lines[start : stop + 1 if last else None]
    module, name = thing.__module__, thing.__qualname__  # type: ignore[attr-defined]
    own = module.startswith(f"{__package__}.")  # or else in a file of the reader's
    place = f"{module}." if own else f"{Path(inspect.getfile(thing)).name}, "  # type: ignore[arg-type]
    return Source(f"# {place}{name}\n" + textwrap.dedent("\n".join(shown)))


def reset(file: str | Path) -> None:
    """Bring a file of the book back as the book ships it, and keep what was there beside it.

    JupyterLite serves the book's copy again as soon as the reader's has another name. Elsewhere
    it is the one of the repository's last commit.

    Parameters
    ----------
    file : str or Path
        Such as ``"policies/my_policy.py"``.

    Raises
    ------
    InputError
        If the book has no such file. Then everything stays as it is.
    """
    file_name(file=file)
    path = Path(file)
    if path.is_dir():
        raise InputError(f"reset: {path} is a folder; name one file")
    names = (path.with_stem(f"{path.stem}_{n}") for n in itertools.count(1))
    kept = next(name for name in names if not name.exists())
    mine = path.read_bytes() if path.exists() else None
    if mine is not None:
        path.rename(kept)
    try:
        if not path.exists():
            path.write_bytes(_committed(path))
    except InputError:
        if mine is not None:
            kept.rename(path)
        raise
    if mine is None:
        print(f"{path} is back.")
    elif path.read_bytes() == mine:
        kept.unlink()
        print(f"{path} already is as the book ships it.")
    else:
        print(f"{path} is as the book ships it. Yours is kept as {kept}.")


def _committed(path: Path) -> bytes:
    try:
        told = subprocess.run(
            ["git", "show", f"HEAD:./{path.name}"], cwd=path.parent, capture_output=True, check=True
        )
    except (OSError, subprocess.SubprocessError):  # no folder, no git, or not in the commit
        raise InputError(
            f"reset: the book has no file {path} that could be brought back here; "
            f"check the name, or fetch it from the book's repository"
        ) from None
    return told.stdout
