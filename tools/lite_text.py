"""What the built pages say, for the text of a chapter that is read outside them.

JupyterLab shows most of a chapter's directives, but knows neither the book's other pages nor its
numbers: ``{term}`batch` `` stays as it is written. `read_book` finds out what the build knows, and
`adapt` puts it into a chapter's cells. A reference becomes a link to the built page,
``{glue:text}`` the number; exercises and solutions become boxes that need no other cell, and a
figure's caption a paragraph below it. A role or directive that is not known stops the build.
"""

from __future__ import annotations

import ast
import copy
import html
import json
import pickle
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell
from sphinx.util.inventory import InventoryFile

# From JupyterLite's only page, `lite/lab/index.html`, to the book. As HTML, because JupyterLab
# takes a relative Markdown link for a file of its own.
UP = "../../"

FENCE = re.compile(r"(`{3,}|~{3,}|:{3,})(?:\{([\w:-]+)\})?\s*(.*)")
ROLE_OR_CODE = re.compile(r"\{([\w:-]+)\}`([^`]+)`|(?<!`)(`+)(?!`).+?(?<!`)\3(?!`)", re.DOTALL)
TARGET = re.compile(r"\([\w-]+\)=")
# Fences longer than any in a chapter, to hold whatever is there.
BOX = "::::::::"
# Shown by JupyterLab as they are.
KNOWN = {"admonition", "note", "tip", "warning", "math"}
# Tags of cells whose code the page folds away or leaves out. Here it is folded.
FOLDED = {"hide-input", "remove-input", "remove-cell"}


class NotInTheBookError(Exception):
    """A chapter refers to something that the built pages do not have."""


# ------------------------------------------------------------------ what the build found out


@dataclass
class Page(HTMLParser):
    """What a built page says about its figures, exercises and citations."""

    numbers: dict[str, str] = field(default_factory=dict)  # by id: "Fig. 5.1", "Exercise 5.2"
    cited: dict[str, str] = field(default_factory=dict)  # by address: "Yu et al., 2022"

    def __post_init__(self) -> None:
        super().__init__()
        self._id = self._text = ""
        self._inside: tuple[str, str] | None = None  # (tag, address) of what is being read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note ids, and begin to read numbers and citations."""
        has = {name: value or "" for name, value in attrs}
        if tag == "figure" or has.get("class", "").startswith("exercise "):
            self._id = has.get("id", "")
        if has.get("class") == "caption-number":
            self._inside, self._text = (tag, ""), ""
        elif tag == "a" and "references.html#id" in has.get("href", ""):
            self._inside, self._text = (tag, has["href"]), ""

    def handle_data(self, data: str) -> None:
        """Read on."""
        self._text += data

    def handle_endtag(self, tag: str) -> None:
        """Note what was read."""
        if self._inside and tag == self._inside[0]:
            if tag == "a":
                self.cited[self._inside[1]] = self._text
            else:
                self.numbers.setdefault(self._id, self._text.strip())
            self._inside = None


def read_page(path: Path) -> Page:
    """Read a built page."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


@dataclass
class Book:
    """All that references can lead to.

    Attributes
    ----------
    labels, terms : dict of str to (str, str)
        Address from the site's root, and title.
    numbers : dict of str to str
        "Fig. 5.1" or "Exercise 5.2", by label.
    cites : dict of str to (str, str)
        Address and "Author, year", by the key in the bibliography.
    glued : dict of str to str
        The computed text, by name; of one chapter.
    """

    labels: Mapping[str, tuple[str, str]]
    terms: Mapping[str, tuple[str, str]]
    numbers: Mapping[str, str]
    cites: Mapping[str, tuple[str, str]]
    glued: Mapping[str, str]


def read_book(site: Path, chapters: Path) -> Callable[[Path], Book]:
    """Return a function that gives a chapter's `Book`: its own `glued`, all else in common.

    Parameters
    ----------
    site : Path
        The built pages; what their notebooks computed lies beside them.
    chapters : Path
        Folder of the sources.

    Raises
    ------
    NotInTheBookError
        If a page, or something else that the build leaves, is missing.
    """
    # The pages do not tell which key of the bibliography is which entry; Sphinx's notes do.
    known, notes = site / "objects.inv", site.parent / ".doctrees" / "environment.pickle"
    for path in (known, notes):
        if not path.is_file():
            raise NotInTheBookError(f"{path} is missing: build the book first (make site)")
    with known.open("rb") as stream:
        inventory = InventoryFile.load(stream, "", posixpath.join)
    environment = pickle.loads(notes.read_bytes())
    numbers, texts = dict[str, str](), dict[str, str]()
    for source in sorted(chapters.rglob("*.md")):
        built = (site / source.relative_to(chapters.parent)).with_suffix(".html")
        if not built.is_file():
            raise NotInTheBookError(f"{built} is missing: build the book first (make site)")
        page = read_page(built)
        numbers |= page.numbers
        texts |= {_from_root(built, site, href): text for href, text in page.cited.items()}
    cites = dict[str, tuple[str, str]]()
    for citation in environment.domaindata["cite"]["citations"]:
        address = f"{citation.bibliography_key.docname}.html#{citation.citation_id}"
        cites[citation.key] = (address, texts.get(address, citation.key))

    def of(chapter: Path) -> Book:
        name = chapter.relative_to(chapters.parent).with_suffix(".glue.json")
        path = site.parent / "jupyter_execute" / name
        glued = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return Book(
            {n: (i[2], i[3]) for n, i in inventory["std:label"].items()},
            {n.lower(): (i[2], i[3]) for n, i in inventory["std:term"].items()},
            numbers,
            cites,
            {n: ast.literal_eval(o["data"]["text/plain"]) for n, o in glued.items()},
        )

    return of


def _from_root(page: Path, site: Path, href: str) -> str:
    folder = page.parent.relative_to(site).as_posix()
    return posixpath.normpath(posixpath.join(folder, href))


# ----------------------------------------------------------------------------- one reference


def link(address: str, text: str) -> str:
    """Return a link to a built page, which opens beside JupyterLite."""
    return f'<a href="{UP}{html.escape(address)}" target="_blank">{html.escape(text, False)}</a>'


def role(book: Book, name: str, content: str) -> str:
    """Return what stands on the page for ``{name}`content` ``.

    Raises
    ------
    NotInTheBookError
        If the role or what it refers to is unknown.
    """
    given = re.fullmatch(r"(.+?)\s*<([^<>]+)>", content, re.DOTALL)
    text, target = (given[1], given[2]) if given else ("", " ".join(content.split()))
    try:
        if name == "glue:text":
            return book.glued[target]
        if name == "cite":
            keys = (key.strip() for key in target.split(","))
            return "[" + "; ".join(link(*book.cites[key]) for key in keys) + "]"
        if name == "term":
            return link(book.terms[target.lower()][0], text or target)
        if name == "numref":
            return link(book.labels[target.lower()][0], book.numbers[target])
        if name == "ref":
            address, title = book.labels[target.lower()]
            return link(address, text or book.numbers.get(target, title))
    except KeyError as error:
        raise NotInTheBookError(f"{{{name}}}`{content}`: the book has no {error}") from None
    raise NotInTheBookError(f"{{{name}}}`{content}`: tools/lite_text.py knows no such role")


def prose(book: Book, text: str) -> str:
    """Resolve the roles in a text, except in code."""
    return ROLE_OR_CODE.sub(lambda m: role(book, m[1], m[2]) if m[1] else m[0], text)


# ---------------------------------------------------------------------------- a whole chapter


@dataclass
class Box:
    """An exercise or a solution. It may go on over several cells: each has a part of its own."""

    title: str
    classes: str
    begun: bool = False

    def around(self, text: str) -> str:
        """Return the next part with a frame around it; nothing for an empty one, but the first."""
        if not text.strip():
            if self.begun:
                return ""
            text = "Its cells are folded: click on the dots below."
        title = f"{self.title}, continued" if self.begun else self.title
        self.begun = True
        return f"{BOX}{{admonition}} {title}\n:class: {self.classes}\n\n{text.strip()}\n{BOX}"


class Adapter:
    """Goes through the text of one chapter, from top to bottom."""

    def __init__(self, book: Book) -> None:
        self.book = book
        self.box: Box | None = None  # what has begun and not ended

    def text(self, source: str) -> str:
        """Return the text of a cell as it is to be shown, or nothing."""
        done, part = list[str](), list[str]()
        for block in self.blocks(iter(source.split("\n"))):
            if isinstance(block, str):
                part.append(block)
            else:
                done.append(self.framed(part))
                self.box, part = block, []
        done.append(self.framed(part))
        return "\n\n".join(filter(None, done))

    def framed(self, part: list[str]) -> str:
        """Return some blocks, in the box that is open."""
        text = "\n".join(part).strip("\n")
        return self.box.around(text) if self.box else text

    def blocks(self, lines: Iterator[str]) -> Iterator[str | Box | None]:
        """Yield text, and at the start and the end of what spans cells the new box or None."""
        plain = list[str]()
        for line in lines:
            fence = FENCE.fullmatch(line)
            if not fence:
                if not TARGET.fullmatch(line):
                    plain.append(line)
                continue
            yield prose(self.book, "\n".join(plain))
            plain = []
            mark, name, rest = fence.groups()
            inside = list(until_closed(mark, lines))
            if not name:
                yield "\n".join([line, *inside, mark])
            elif name in ("exercise-end", "solution-end"):
                yield None
            elif name in ("exercise-start", "solution-start"):
                yield self.head(name, rest, inside)
            elif name in ("exercise", "solution"):
                first = next((i for i, x in enumerate(inside) if x[:1] != ":"), len(inside))
                box = self.head(name, rest, inside[:first])
                yield box.around(self.nested(inside[first:]))
            elif name in KNOWN:
                title = prose(self.book, rest)
                yield "\n".join([f"{mark}{{{name}}} {title}".rstrip(), self.nested(inside), mark])
            else:
                raise NotInTheBookError(f"{line!r}: tools/lite_text.py knows no such directive")
        yield prose(self.book, "\n".join(plain))

    def nested(self, lines: list[str]) -> str:
        """Return what is inside a directive."""
        return "\n".join(filter(None, self.blocks(iter(lines))))  # type: ignore[arg-type]

    def head(self, name: str, argument: str, options: list[str]) -> Box:
        """Return the box of an exercise or a solution."""
        if name.startswith("solution"):
            return Box(f"Solution to {self.number(argument)}", "dropdown")
        label = next(o.partition(":label:")[2].strip() for o in options if ":label:" in o)
        title = f"{self.number(label)}: {prose(self.book, argument)}" if argument else ""
        return Box(title or self.number(label), "hint")

    def number(self, label: str) -> str:
        """Return the number of an exercise."""
        if label not in self.book.numbers:
            raise NotInTheBookError(f"exercise {label!r} has no number in the book")
        return self.book.numbers[label]


def until_closed(mark: str, lines: Iterator[str]) -> Iterator[str]:
    """Yield the lines up to the fence that closes `mark`."""
    for line in lines:
        if line.rstrip().startswith(mark) and not line.strip(mark[0] + " "):
            return
        yield line


def adapt(cells: list[NotebookNode], book: Book) -> list[NotebookNode]:
    """Return a chapter's cells as they are to be read outside the book.

    Raises
    ------
    NotInTheBookError
        If something refers to what the book does not have.
    """
    adapter, adapted = Adapter(book), list[NotebookNode]()
    for cell in copy.deepcopy(cells):
        if cell.cell_type == "markdown":
            cell.source = adapter.text(cell.source)
            adapted += [cell] if cell.source else []
            continue
        adapted.append(cell)
        # And what belongs to a solution: nobody wants to see it before its time.
        if adapter.box or FOLDED & set(cell.metadata.get("tags", [])):
            cell.metadata["jupyter"] = {"source_hidden": True}
        figure = cell.metadata.get("mystnb", {}).get("figure", {})
        if "caption" in figure:
            caption = prose(book, " ".join(figure["caption"].split()))
            number = book.numbers.get(figure.get("name", ""), "")
            adapted.append(
                new_markdown_cell(f"**{number}** {caption}".removeprefix("****").strip())
            )
    return adapted
