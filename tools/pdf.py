"""Print the book: ``make pdf`` writes `_build/pdf/tokens-in-flight.pdf` through LaTeX.

The pages are built from a copy of their sources, with a first page of its own, an environment of
its own, and plots as vectors. This module is also the Sphinx extension that says what becomes of
things that paper cannot show: a live figure is printed as its first picture, an HTML table of
results as a table.
"""

from __future__ import annotations

import hashlib
import html as html_entities
import os
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

from servesim.svg import flatten

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
HERE = ROOT / "_build" / "pdf"
NAME = "tokens-in-flight"
NEEDS = ("latexmk", "xelatex", "makeindex", "rsvg-convert")
PACKAGES = (
    "latexmk texlive-xetex texlive-latex-extra texlive-fonts-recommended fonts-texgyre "
    "fonts-texgyre-math fonts-freefont-otf fonts-dejavu-core librsvg2-bin"
)
APPENDICES = ("glossary", "notation", "references", "for-instructors")
LEFT_OUT = ("api",)  # forty pages that one looks up on the screen
LETTERS = "TeX Gyre Heros"  # codespell:ignore
MOVES = "The sliders of this figure move on its page: "
CHECKS = "Other seeds, and a check of your numbers, are on its page: "

# The plots as vectors too: LaTeX takes the best of what an output offers.
KERNEL = 'c.InlineBackend.figure_formats = {"png", "pdf"}\n'

CONF = '''"""Written by tools/pdf.py; do not edit."""
import sys

import yaml
from jupyter_book.config import get_final_config

sys.path.insert(0, {tools!r})
globals().update(
    get_final_config(
        user_yaml=yaml.safe_load(open({config!r}, encoding="utf-8")),
        cli_config={{"latex_individualpages": False}},
        use_external_toc=False,
    )[0]
)
extensions = [e for e in extensions if e != "sphinx_jupyterbook_latex"] + ["pdf"]
html_extra_path, html_static_path, html_favicon = [], [], None
project = html_title
root_doc = "index"
bibtex_bibfiles = ["chapters/references.bib"]
nb_execution_cache_path = {cache!r}
latex_engine, latex_use_xindy = "xelatex", False
latex_documents = [("index", {name!r} + ".tex", project, author, "manual", False)]
latex_table_style = ["booktabs"]
latex_show_urls = "no"
latex_domain_indices = False
latex_elements = {{
    "papersize": "a4paper",
    "pointsize": "10pt",
    "extraclassoptions": "openany,oneside",
    "figure_align": "htbp",
    "fncychap": "",
    "sphinxsetup": "hmargin=25mm, vmargin={{25mm,28mm}}, verbatimwithframe=false, "
        "VerbatimColor={{rgb}}{{0.96,0.965,0.97}}, verbatimsep=4pt, verbatimforcewraps=true",
    "fvset": r"\\fvset{{fontsize=\\footnotesize}}",
    "fontpkg": {fonts!r},
    "preamble": {preamble!r},
}}
'''

FONTS = r"""
\usepackage{unicode-math}
\setmainfont{texgyrepagella}[Extension=.otf, UprightFont=*-regular, BoldFont=*-bold,
  ItalicFont=*-italic, BoldItalicFont=*-bolditalic]
\setsansfont{texgyreheros}[Extension=.otf, UprightFont=*-regular, BoldFont=*-bold,
  ItalicFont=*-italic, BoldItalicFont=*-bolditalic]
\setmonofont{DejaVu Sans Mono}[Scale=0.84]
\setmathfont{texgyrepagella-math.otf}
"""

PREAMBLE = r"""
\setcounter{chapter}{-1}  % the introduction is chapter 0, as on the web it has no number
\setcounter{tocdepth}{1}
\usepackage{newunicodechar}
\newunicodechar{⁻}{\textsuperscript{-}}
\newunicodechar{⁴}{\textsuperscript{4}}
\newunicodechar{⁶}{\textsuperscript{6}}
\emergencystretch=3em
\renewcommand{\topfraction}{0.85}
\renewcommand{\floatpagefraction}{0.7}
"""


# --- The extension ------------------------------------------------------------------------


class Rows(HTMLParser):
    """Reads the rows of the first table."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.header = 0
        self.after = ""
        self._where = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        """Open a row or a cell."""
        if tag == "tr":
            self.rows.append([])
        elif tag in ("th", "td"):
            self.rows[-1].append("")
        self._where = tag if tag in ("th", "td", "p") else self._where

    def handle_endtag(self, tag: str) -> None:
        """Close what is open."""
        if tag == "thead":
            self.header = len(self.rows)
        if tag in ("th", "td", "p"):
            self._where = ""

    def handle_data(self, data: str) -> None:
        """Add to the cell, or to the note below the table."""
        if self._where in ("th", "td"):
            self.rows[-1][-1] += data
        elif self._where == "p":
            self.after += data


def number(text: str) -> bool:
    """Tell whether a cell holds a number, or stands for a missing one."""
    return bool(re.fullmatch(r"[-+−]?[\d.,]+\s*[%×x]?|[-–]?", text.strip()))


def table(html: str) -> list[nodes.Element]:
    """Return an HTML table, and the note below it, as document nodes."""
    reader = Rows()
    reader.feed(html)
    body = reader.rows[reader.header :]
    right = [all(number(row[i]) for row in body) for i in range(len(body[0]))]
    group = nodes.tgroup(cols=len(right))
    group += [nodes.colspec(colwidth=1) for _ in right]
    for kind, rows in ((nodes.thead, reader.rows[: reader.header]), (nodes.tbody, body)):
        part = kind()
        for row in rows:
            line = nodes.row()
            for cell, is_right in zip(row, right, strict=True):
                entry = nodes.entry(classes=["text-right"] if is_right else [])
                if cell:  # an empty paragraph would make the row two lines high
                    entry += nodes.paragraph("", cell)
                line += entry
            part += line
        group += part
    made: list[nodes.Element] = [nodes.table("", group)]
    if reader.after:
        made.append(nodes.paragraph("", "", nodes.emphasis("", reader.after)))
    return made


class Printable(SphinxPostTransform):
    """Give each HTML output a form for paper, before MyST-NB chooses among the forms."""

    default_priority = 3
    formats = ("latex",)

    def run(self, **kwargs: Any) -> None:
        """Look through the outputs of all cells."""
        for bundle in list(self.document.findall(nodes.container)):
            if bundle.get("nb_element") != "mime_bundle":
                continue
            forms = {form["mime_type"]: form for form in bundle.children}
            html = forms.get("text/html")
            if html is None:
                continue
            source = html.astext()
            if 'class="live-fig live-exercise"' in source:
                better = self.exercise(source, self.page(bundle))
            elif "<svg" in source:
                better = self.picture(source, self.page(bundle))
            elif source.startswith("<table"):
                better = table(source)
            else:
                continue
            html["mime_type"] = "application/pdf"
            html.children = []
            html += better

    def page(self, node: nodes.Node) -> str:
        """Return the page that a part of the whole book was read from."""
        while node.parent is not None:
            node = node.parent
        return self.env.path2doc(node["source"]) or self.env.docname

    def exercise(self, html: str, page: str) -> list[nodes.Element]:
        """Return an exercise with its first seed: the task, what is asked, and the solution."""
        live, _, folded = html.partition('<details class="live-fig exercise-solution">')
        asked = re.findall(r'<label for="[^"]*-answer-\d+">(.*?)</label>', live)
        answers = re.findall(r"<li>(.*?)</li>", folded)
        wanted = nodes.bullet_list(
            "", *(nodes.list_item("", nodes.paragraph("", words_of(name))) for name in asked)
        )
        found = f"Solution: {'; '.join(map(words_of, answers))}. "
        return [
            nodes.paragraph("", self.said(live)),
            *table(between(live, "table")),
            *self.images(live),
            wanted,
            nodes.paragraph("", "", nodes.Text(CHECKS), self.address(page), nodes.Text(".")),
            nodes.paragraph("", found + self.said(folded)),
            *self.images(folded),
            *table(between(folded, "table")),
        ]

    def picture(self, html: str, page: str) -> list[nodes.Element]:
        """Return the picture of a figure, what it says, and on which page it moves."""
        made = self.images(html)
        said = self.said(html)
        words = [nodes.Text(f"{said} ")] if said else []
        if 'class="live-controls"' in html:
            words += [nodes.Text(MOVES), self.address(page), nodes.Text(".")]
        if words:
            made.append(nodes.paragraph("", "", *words))
        return made

    def address(self, page: str) -> nodes.reference:
        """Return a link to a page of the published book."""
        at = f"{self.config.html_baseurl}{page}.html"
        return nodes.reference("", at, refuri=at)

    def said(self, html: str) -> str:
        """Return what a figure says in its sentence."""
        said = re.search(r'(?s)<p class="live-summary">(.*?)</p>', html)
        return words_of(said[1]) if said else ""

    def images(self, html: str) -> list[nodes.Element]:
        """Return the pictures in some HTML."""
        folder = HERE / "pictures"
        folder.mkdir(parents=True, exist_ok=True)
        made: list[nodes.Element] = []
        for svg in re.findall(r"(?s)<svg\b.*?</svg>", html):
            flat = re.sub(r'font-family="[^"]*"', f'font-family="{LETTERS}"', flatten(svg))
            path = folder / f"{hashlib.sha256(flat.encode()).hexdigest()[:16]}.pdf"
            if not path.exists():
                command = ["rsvg-convert", "--format", "pdf", "--output", str(path)]
                subprocess.run(command, input=flat.encode(), check=True)
            uri = os.path.relpath(path, self.app.srcdir)
            image = nodes.image(uri=uri, candidates={"application/pdf": uri}, align="center")
            image["width"] = width(flat)
            self.env.images.add_file(self.env.docname, uri)
            made.append(image)
        return made


def between(html: str, tag: str) -> str:
    """Return the first element of that tag."""
    return html[html.index(f"<{tag}") : html.index(f"</{tag}>") + len(f"</{tag}>")]


def words_of(html: str) -> str:
    """Return the text of HTML."""
    return html_entities.unescape(re.sub(r"<[^>]*>", "", html))


def width(svg: str) -> str:
    """Return how wide to print an SVG: as wide as the page if its height leaves room for words."""
    sizes = re.findall(r'\b(?:width|height)="([\d.]+)"', svg)[:2]
    wide, high = map(float, sizes)
    inches = min(6.25, wide / 100, 6.6 * wide / high)
    return f"{inches:.2f}in"


class Columns(SphinxPostTransform):
    """Set the columns of tables as their alignment says; figures to the right."""

    default_priority = 900
    formats = ("latex",)

    def run(self, **kwargs: Any) -> None:
        """Put a column specification before each table that has none."""
        for found in list(self.document.findall(nodes.table)):
            rows = list(found.findall(nodes.row))
            if isinstance(found.previous_sibling(), addnodes.tabular_col_spec) or not rows:
                continue
            entries = [c for c in rows[-1].children if isinstance(c, nodes.entry)]
            right = ["text-right" in entry["classes"] for entry in entries]
            if len(rows) > 30:
                share = f"{1 / len(right):.4f}\\linewidth-2\\tabcolsep"
                spec = f"p{{\\dimexpr{share}\\relax}}" * len(right)
            else:
                spec = "".join("R" if is_right else "L" for is_right in right)
            place = found.parent.index(found)
            around = [addnodes.tabular_col_spec(spec=f"{{{spec}}}"), found]
            if len(right) > 5:
                small = nodes.raw("", r"\begingroup\footnotesize", format="latex")
                around = [small, *around, nodes.raw("", r"\endgroup", format="latex")]
            found.parent[place : place + 1] = around


def setup(app: Sphinx) -> dict[str, Any]:
    """Tell Sphinx."""
    app.add_post_transform(Printable)
    app.add_post_transform(Columns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


# --- The command --------------------------------------------------------------------------


def copy() -> None:
    """Copy the sources, with a first page that lists them in order."""
    source = HERE / "source"
    shutil.rmtree(source, ignore_errors=True)
    shutil.copytree(ROOT / "chapters", source / "chapters")
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text(encoding="utf-8"))
    pages = [toc["root"], *(c["file"] for part in toc["parts"] for c in part["chapters"])]
    appendices = [page for page in pages if Path(page).name in APPENDICES]
    left_out = [page for page in pages if Path(page).name in LEFT_OUT]
    body = [page for page in pages if page not in appendices + left_out]
    for page in left_out:  # read all the same: the text refers to it
        path = source / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        path.write_text(f"---\norphan: true\n---\n{text}", encoding="utf-8")
    title = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["title"]
    trees = ["\n".join(["```{toctree}", *part, "```"]) for part in (body, appendices)]
    appendix = "\n\n```{raw} latex\n\\appendix\n```\n\n"
    (source / "index.md").write_text(f"# {title}\n\n{appendix.join(trees)}\n", encoding="utf-8")
    conf = CONF.format(
        tools=str(ROOT / "tools"),
        config=str(ROOT / "_config.yml"),
        cache=str(HERE / "cache"),
        name=NAME,
        fonts=FONTS,
        preamble=PREAMBLE,
    )
    (source / "conf.py").write_text(conf, encoding="utf-8")
    profile = HERE / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    (profile / "ipython_kernel_config.py").write_text(KERNEL, encoding="utf-8")


def faults(log: str) -> list[str]:
    """Return what LaTeX complained of and a reader would see."""
    # A log's lines break after 79 characters.
    found = re.findall(r"Missing character: There is no (.) .*? in font ([^!]*)", log)
    bad = [f"no {sign} in the font {font}" for sign, font in dict.fromkeys(found)]
    for points, where in re.findall(r"Overfull \\hbox \(([\d.]+)pt too wide\) (.*)", log):
        if float(points) > 10:
            bad.append(f"{float(points):.0f} pt too wide, {where}")
    return bad


def run(command: list[str], where: Path, quiet: bool = False) -> None:
    """Run a command; stop if it fails."""
    env = {**os.environ, "IPYTHONDIR": str(HERE / "ipython"), "max_print_line": "1000"}
    done = subprocess.run(command, cwd=where, env=env, capture_output=quiet, check=False)
    if done.returncode:
        # Pages that were read once are not warned about again.
        shutil.rmtree(HERE / "doctrees", ignore_errors=True)
        if quiet:
            sys.stderr.write((done.stdout + done.stderr).decode(errors="replace")[-4000:])
        sys.exit(f"make pdf: {Path(command[0]).name} failed")


def main() -> None:
    """Print the book."""
    if missing := [name for name in NEEDS if shutil.which(name) is None]:
        sys.exit(
            f"make pdf needs {', '.join(missing)}; on Debian or Ubuntu, "
            f"`sudo apt-get install {PACKAGES}` installs all of it."
        )
    print("Printing the book (some minutes the first time, one after that)", flush=True)
    copy()
    latex = HERE / "latex"
    sphinx = [sys.executable, "-m", "sphinx", "-b", "latex", "-q", "-W", "-n", "--keep-going"]
    run([*sphinx, "-d", str(HERE / "doctrees"), "source", "latex"], HERE)
    made = f"{NAME}.tex"
    run(["latexmk", "-xelatex", "-interaction=nonstopmode", made], latex, quiet=True)
    for fault in faults((latex / f"{NAME}.log").read_text(encoding="utf-8", errors="replace")):
        print(f"A reader would see: {fault}")
    pdf = shutil.copy(latex / f"{NAME}.pdf", HERE)
    print(f"{Path(pdf).relative_to(ROOT)}: {Path(pdf).stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
