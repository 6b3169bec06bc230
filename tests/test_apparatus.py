"""Glossary, references and notation: complete, and linked to without a dangling end.

The scanners below read chapters as text. Each has a test of its own on made-up
text, so that a scanner that finds nothing cannot pass for a book without faults.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
from pybtex.database import BibliographyData, Entry, parse_file, parse_string

CHAPTERS = Path(__file__).resolve().parents[1] / "chapters"
GLOSSARY = CHAPTERS / "glossary.md"
BIBLIOGRAPHY = CHAPTERS / "references.bib"
NOTATION = CHAPTERS / "notation.md"

#: Directives whose body is not Markdown, so that a role in it is only text.
LITERAL_DIRECTIVES = {
    "code",
    "code-block",
    "code-cell",
    "literalinclude",
    "math",
    "parsed-literal",
    "raw",
    "sourcecode",
}
FENCE = re.compile(r"^\s*(`{3,}|~{3,}|:{3,})\s*(.*?)\s*$")


# --- The scanners -----------------------------------------------------------


def markdown_only(source: str) -> str:
    """Return `source` without code blocks, code spans of two backticks and comments."""
    kept: list[str] = []
    open_directives: list[str] = []  # the fences of Markdown directives, outermost first
    literal = ""  # the fence of the code block we are in
    for line in source.splitlines():
        match = FENCE.match(line)
        fence, info = match.groups() if match else ("", "")
        if literal:
            if fence[:1] == literal[0] and len(fence) >= len(literal) and not info:
                literal = ""
            continue
        if not fence:
            if not line.lstrip().startswith("% "):
                kept.append(line)
            continue
        directive = re.match(r"\{([\w:-]+)\}(.*)", info)
        if directive and directive[1] not in LITERAL_DIRECTIVES:
            open_directives.append(fence)
            kept.append(directive[2])  # a title may hold roles
        elif not info and open_directives and open_directives[-1] == fence:
            open_directives.pop()
        else:
            literal = fence
    text = "\n".join(kept)
    return re.sub(r"(?<!`)``(?!`).*?(?<!`)``(?!`)", "", text, flags=re.DOTALL)


def role_contents(source: str, name: str) -> list[str]:
    """Return what stands in the backticks of each role that matches `name`."""
    found = re.findall(rf"\{{{name}\}}`([^`]+)`", markdown_only(source))
    return [" ".join(content.split()) for content in found]


def term_targets(source: str) -> list[str]:
    """Return the glossary terms that `source` links to, as Sphinx reads them."""
    targets = []
    for content in role_contents(source, "term"):
        explicit = re.fullmatch(r".*?(?<!\\)<(.+)>", content)
        targets.append(explicit[1] if explicit else content)
    return [target for target in targets if not target.startswith("!")]


def cited_keys(source: str) -> list[str]:
    """Return the bibliography keys that `source` cites, in any of the cite roles."""
    keys = []
    for content in role_contents(source, r"cite(?::\w+)?"):
        without_notes = re.sub(r"\{[^{}]*\}", "", content)  # {see}key{page 3}
        keys += [key.strip() for key in without_notes.split(",")]
    return keys


def glossary_entries(source: str) -> list[tuple[list[str], str]]:
    """Return each entry of the glossary: its terms, first one first, and its text."""
    body = re.search(r"^```\{glossary\}\n(.*?)^```", source, re.DOTALL | re.MULTILINE)
    entries: list[tuple[list[str], str]] = []
    for line in body[1].splitlines() if body else []:
        if not line.strip() or re.match(r":\w+:", line):
            continue
        if line.startswith(" "):
            terms, text = entries[-1]
            entries[-1] = terms, f"{text} {line.strip()}".strip()
        elif entries and not entries[-1][1]:
            entries[-1][0].append(line.strip())
        else:
            entries.append(([line.strip()], ""))
    return entries


def unsorted_entries(entries: list[tuple[list[str], str]]) -> list[str]:
    """Return the entries that come before their predecessor in the alphabet."""
    heads = [terms[0].casefold() for terms, _ in entries]
    return [b for a, b in itertools.pairwise(heads) if b < a]


def repeated_terms(entries: list[tuple[list[str], str]]) -> list[str]:
    """Return the terms that stand twice; case does not tell two terms apart."""
    terms = [term.lower() for names, _ in entries for term in names]
    return sorted({term for term in terms if terms.count(term) > 1})


def flaws(entry: Entry) -> list[str]:
    """Return what a bibliography entry lacks."""
    fields = entry.fields
    found = []
    if not (entry.persons.get("author") or entry.persons.get("editor")):
        found.append("no author")
    if not fields.get("title", "").strip("{} "):
        found.append("no title")
    linked = "url" in fields or "doi" in fields
    year = fields.get("year", "")
    undated_page = year == "n.d." and entry.type == "misc" and "url" in fields
    if not (re.fullmatch(r"(19|20)\d\d", year) or undated_page):
        found.append("no year")
    venues = ("journal", "booktitle", "publisher", "institution", "school")
    if not (linked or any(fields.get(venue) for venue in venues)):
        found.append("no venue and no link")
    if "doi" in fields and not re.fullmatch(r"10\.\d{4,}/\S+", fields["doi"]):
        found.append("doi is not a bare DOI")
    if "url" in fields and not re.fullmatch(r"https?://\S+", fields["url"]):
        found.append("url is not an address")
    return found


# --- The book ---------------------------------------------------------------


def pages() -> list[Path]:
    """Return the book's pages."""
    return sorted(CHAPTERS.rglob("*.md"))


def page_id(page: Path) -> str:
    """Name a page in a test's report."""
    return page.relative_to(CHAPTERS).as_posix()


@pytest.fixture(scope="module")
def glossary() -> list[tuple[list[str], str]]:
    """The entries of the book's glossary."""
    return glossary_entries(GLOSSARY.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def bibliography() -> BibliographyData:
    """The book's bibliography; a key that stands twice is refused while reading."""
    return parse_file(BIBLIOGRAPHY, bib_format="bibtex")


def test_glossary_is_there_sorted_and_without_repeats(
    glossary: list[tuple[list[str], str]],
) -> None:
    assert len(glossary) > 50
    assert unsorted_entries(glossary) == []
    assert repeated_terms(glossary) == []
    assert [terms for terms, text in glossary if not text.endswith((".", ")"))] == []


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_every_term_is_in_the_glossary(page: Path, glossary: list[tuple[list[str], str]]) -> None:
    known = {term.lower() for terms, _ in glossary for term in terms}
    used = term_targets(page.read_text(encoding="utf-8"))
    assert sorted({term for term in used if term.lower() not in known}) == []


@pytest.mark.parametrize("page", pages(), ids=page_id)
def test_every_cited_key_is_in_the_bibliography(page: Path, bibliography: BibliographyData) -> None:
    used = cited_keys(page.read_text(encoding="utf-8"))
    assert sorted({key for key in used if key not in bibliography.entries}) == []


def test_every_reference_is_complete(bibliography: BibliographyData) -> None:
    assert len(bibliography.entries) > 20
    incomplete = {key: flaws(entry) for key, entry in bibliography.entries.items()}
    assert {key: lacks for key, lacks in incomplete.items() if lacks} == {}


def test_the_percentile_example_is_computed_right() -> None:
    """The small table under "Percentiles" agrees with the rules above it."""
    x = list(range(1, 101))
    n = len(x)

    def linear(p: float) -> float:
        h = (n - 1) * p
        k = int(h)
        return x[k] + (h - k) * (x[k + 1] - x[k])

    want = {
        "linear interpolation": [linear(0.95), linear(0.99)],
        "MLPerf's rule": [x[int(n * 0.95)], x[int(n * 0.99)]],
        "toy program's P99": [None, sorted(x)[int(0.99 * len(x)) - 1]],
        "slot program's p95": [sorted(x)[min(n - 1, int(0.95 * n))], None],
    }
    example = NOTATION.read_text(encoding="utf-8").split("On the hundred values")[1]
    rows = re.findall(r"^\| ([^|]+) \| ([\d.]*) ?\| ([\d.]*) ?\|$", example, re.MULTILINE)
    got = {name.strip(): [float(cell) if cell else None for cell in cells] for name, *cells in rows}
    assert got.keys() == want.keys()
    for name, values in want.items():
        assert got[name] == pytest.approx(values), name


# --- The scanners see what they should --------------------------------------


def test_terms_are_seen_where_sphinx_sees_them() -> None:
    source = """
A {term}`KV cache` and {term}`blocks <block>`, even {term}`over a
line <token budget>`, but not {term}`!quiet`, ``{term}`as code` ``.

```python
"{term}`in code`"
```

````{note} Title with {term}`slot`
Text with {term}`step`.

```{code-cell} ipython3
# {term}`in a cell`
```

:::{tip}
{term}`plan`
:::
````
% {term}`in a comment`
Last: {term}`view`.
"""
    assert term_targets(source) == [
        "KV cache",
        "block",
        "token budget",
        "slot",
        "step",
        "plan",
        "view",
    ]


def test_a_plain_code_block_inside_a_directive_is_code() -> None:
    source = "````{note}\n```\n{term}`code`\n```\n{term}`text`\n````\n{term}`after`"
    assert term_targets(source) == ["text", "after"]


def test_keys_are_seen_in_every_cite_role() -> None:
    source = "{cite}`a2020x` {cite:t}`b2021y,c2022z` {cite:p}`{see}d2023w{page 3}`"
    assert cited_keys(source) == ["a2020x", "b2021y", "c2022z", "d2023w"]
    assert cited_keys("```\n{cite}`a2020x`\n```\n") == []


def test_glossary_faults_are_seen() -> None:
    entries = glossary_entries(
        "```{glossary}\nview\n  What is shown.\n\nplan\nView\n  What is\n  decided.\n```\n"
    )
    assert entries == [
        (["view"], "What is shown."),
        (["plan", "View"], "What is decided."),
    ]
    assert unsorted_entries(entries) == ["plan"]
    assert repeated_terms(entries) == ["view"]


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ("title={T}, year=2020, url={https://a.b}", "no author"),
        ("author={A}, year=2020, url={https://a.b}", "no title"),
        ("author={A}, title={{}}, year=2020, url={https://a.b}", "no title"),
        ("author={A}, title={T}, url={https://a.b}", "no year"),
        ("author={A}, title={T}, year={n.d.}, publisher={P}", "no year"),
        ("author={A}, title={T}, year=2020", "no venue and no link"),
        ("author={A}, title={T}, year=2020, doi={https://doi.org/1}", "doi is not"),
        ("author={A}, title={T}, year=2020, url={a.b}", "url is not an address"),
        ("author={A}, title={T}, year={n.d.}, url={https://a.b}", ""),
        ("author={A}, title={T}, year=2020, publisher={P}", ""),
    ],
)
def test_incomplete_references_are_seen(fields: str, lacks: str) -> None:
    entry = parse_string(f"@misc{{key, {fields}}}", "bibtex").entries["key"]
    found = flaws(entry)
    assert [flaw[: len(lacks)] for flaw in found] == ([lacks] if lacks else [])
