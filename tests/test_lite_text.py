"""Chapters as they are read in JupyterLite: references resolved, boxes in one cell each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell

import lite_text
from lite_text import Adapter, Book, NotInTheBookError, adapt, prose

ROOT = Path(__file__).resolve().parent.parent
BOOK = Book(
    labels={
        "sec-a": ("chapters/a.html#sec-a", "A & B"),
        "fig-a": ("chapters/a.html#fig-a", "A caption"),
        "ex-a": ("chapters/a.html#ex-a", "Exercise"),
    },
    terms={"kv cache": ("chapters/glossary.html#term-KV-cache", "-")},
    numbers={"fig-a": "Fig. 1.2", "ex-a": "Exercise 1.3"},
    cites={"x2020": ("chapters/references.html#id3", "X et al., 2020"), "y": ("r.html#id4", "Y")},
    glued={"gain": "2.5"},
)


X = '[<a href="../../chapters/references.html#id3" target="_blank">X et al., 2020</a>'


def link(address: str, text: str) -> str:
    return f'<a href="../../{address}" target="_blank">{text}</a>'


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("By {glue:text}`gain`.", "By 2.5."),
        ("{ref}`sec-a`", link("chapters/a.html#sec-a", "A &amp; B")),
        ("{ref}`the *a*\n<sec-a>`", link("chapters/a.html#sec-a", "the *a*")),
        ("{ref}`ex-a`", link("chapters/a.html#ex-a", "Exercise 1.3")),
        ("{numref}`fig-a`", link("chapters/a.html#fig-a", "Fig. 1.2")),
        ("{term}`KV cache`", link("chapters/glossary.html#term-KV-cache", "KV cache")),
        ("{term}`caches <KV cache>`", link("chapters/glossary.html#term-KV-cache", "caches")),
        ("{term}`KV\ncache`", link("chapters/glossary.html#term-KV-cache", "KV cache")),
        ("{cite}`x2020`", f"{X}]"),
        ("{cite}`x2020, y`", f"{X}; {link('r.html#id4', 'Y')}]"),
        ("`` {ref}`sec-a` `` and `{x}`", "`` {ref}`sec-a` `` and `{x}`"),
    ],
)
def test_a_role_becomes_what_the_page_says(source: str, shown: str) -> None:
    assert prose(BOOK, source) == shown


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{ref}`sec-b`", "no 'sec-b'"),
        ("{term}`cache`", "no 'cache'"),
        ("{cite}`z`", "no 'z'"),
        ("{glue:text}`loss`", "no 'loss'"),
        ("{doc}`a`", "no such role"),
        ("```{figure} a.png\n```", "no such directive"),
        ("```{exercise}\n:label: ex-b\nx\n```", "'ex-b' has no number"),
    ],
)
def test_what_is_not_known_stops_the_build(source: str, words: str) -> None:
    with pytest.raises(NotInTheBookError, match=re.escape(words)):
        Adapter(BOOK).text(source)


def test_text_and_code_blocks_stay() -> None:
    text = "# A\n\n| a | b |\n| --- | --- |\n\n```bash\n{ref}`x`\n```\n\n~~~\n```\n~~~\nEnd"
    assert Adapter(BOOK).text("(sec-a)=\n" + text) == text


def test_an_admonition_stays_with_its_references_resolved() -> None:
    source = (
        ":::{admonition} The {ref}`sec-a`\n:class: tip\n\nBy {glue:text}`gain`.\n\n```\na\n```\n:::"
    )
    shown = Adapter(BOOK).text(source)
    assert shown.startswith(":::{admonition} The <a href=")
    assert shown.endswith(":class: tip\n\nBy 2.5.\n\n```\na\n```\n:::")


START = "Before.\n```{exercise-start} By hand\n:label: ex-a\n```\nHow much is {glue:text}`gain`?"


def test_a_box_over_several_cells_is_one_box_in_each() -> None:
    cells = [
        new_markdown_cell(START),
        new_code_cell("1"),
        new_markdown_cell("And then?\n```{exercise-end}\n```\n\n```{solution-start} ex-a\n```"),
        new_code_cell("2"),
        new_markdown_cell("Much.\n```{solution-end}\n```\nAfter."),
        new_code_cell("3"),
    ]
    texts: list[Any] = [
        re.findall(r"\{admonition\} (.*)\n:class: (\w+)|^(\w.*)", cell.source, re.MULTILINE)
        if cell.cell_type == "markdown"
        else cell.metadata.get("jupyter", {})
        for cell in adapt(cells, BOOK)
    ]
    hidden = {"source_hidden": True}
    assert texts == [
        [("", "", "Before."), ("Exercise 1.3: By hand", "hint", ""), ("", "", "How much is 2.5?")],
        hidden,
        [
            ("Exercise 1.3: By hand, continued", "hint", ""),
            ("", "", "And then?"),
            ("Solution to Exercise 1.3", "dropdown", ""),
            ("", "", "Its cells are folded: click on the dots below."),
        ],
        hidden,
        [
            ("Solution to Exercise 1.3, continued", "dropdown", ""),
            ("", "", "Much."),
            ("", "", "After."),
        ],
        {},
    ]


def test_a_box_in_one_directive() -> None:
    source = "```{exercise}\n:label: ex-a\n\nWhat?\n```\n"
    source += "````{solution} ex-a\n:class: dropdown\n```\n1\n```\n````"
    shown = Adapter(BOOK).text(source)
    assert re.findall(r"\{admonition\} (.*)", shown) == ["Exercise 1.3", "Solution to Exercise 1.3"]
    assert "\n\n```\n1\n```\n" in shown
    assert ":label:" not in shown


def test_a_caption_follows_its_figure_and_hidden_cells_are_folded() -> None:
    figure = {"name": "fig-a", "caption": "It {ref}`is <sec-a>`\nso."}
    cells = adapt(
        [
            new_code_cell("a", metadata={"tags": ["hide-input"], "mystnb": {"figure": figure}}),
            new_markdown_cell("```{solution-end}\n```"),
            new_code_cell("b", metadata={"tags": ["remove-cell"]}),
        ],
        BOOK,
    )
    assert [cell.cell_type for cell in cells] == ["code", "markdown", "code"]
    assert cells[1].source == f"**Fig. 1.2** It {link('chapters/a.html#sec-a', 'is')} so."
    assert cells[0].metadata.jupyter == {"source_hidden": True}
    assert cells[2].metadata.jupyter == {"source_hidden": True}


def test_numbers_and_citations_are_read_from_a_page(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<figure class="align-default" id="fig-a"><div class="live-fig" id="live"><p>x</p></div>'
        '<figcaption><p><span class="caption-number">Fig. 1.2 </span><span>Text</span></p>'
        '</figcaption></figure><div class="exercise admonition" id="ex-a"><p><span '
        'class="caption-number">Exercise 1.3 </span></p></div>'
        '<a class="reference internal" href="references.html#id3">X <em>et al.</em>, 2020</a>'
    )
    page = lite_text.read_page(tmp_path / "a.html")
    assert page.numbers == {"fig-a": "Fig. 1.2", "ex-a": "Exercise 1.3"}
    assert page.cited == {"references.html#id3": "X et al., 2020"}


def test_a_site_that_was_not_built_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotInTheBookError, match="build the book first"):
        lite_text.read_book(tmp_path, tmp_path)


# ------------------------------------------------------------------------- the built site


def test_every_chapter_is_there_and_no_markup_is_left_in_it(pytestconfig: pytest.Config) -> None:
    site: Path | None = pytestconfig.getoption("--site")
    if site is None:
        pytest.skip("no built site was named: run `make pages`, or add --site _build/html")
    notebooks = sorted((site / "lite" / "files" / "chapters").glob("*.ipynb"))
    assert notebooks
    for name in ("chapters/policies/my_policy.py", "assignments/warmup/policy.py"):
        assert (site / "lite" / "files" / name).read_bytes() == (ROOT / name).read_bytes()
    for path in notebooks:
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type == "markdown":
                text = re.sub(r"(?ms)^(```|~~~)(?!\{).*?^\1$|``[^`].*?``", "", cell.source)
                assert not re.findall(r"\{[\w:-]+\}`", text), path.name
                directives = re.findall(r"(?m)^(?:`{3,}|:{3,})\{([\w:-]+)\}", text)
                assert set(directives) <= {"admonition"}, path.name
                for page, anchor in re.findall(r'href="../../([^"#]+)#?([^"]*)"', text):
                    built = (site / page).read_text(encoding="utf-8")
                    assert not anchor or f'id="{anchor}"' in built, f"{path.name}: {page}#{anchor}"
