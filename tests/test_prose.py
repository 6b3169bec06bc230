"""The chapters' text: where its numbers come from, its figures, exercises and terms.

A number with a unit, in per cent or as a factor comes from the build (`glue`), or

- its sentence cites a source (in a table: its row or the row of names);
- it is a parameter: it stands literally in a code cell of the page (for per cent and factors, of
  the section) or in a code span of its sentence, or an exercise or a choice under "Predict" sets
  it;
- it is marked: its sentence says *measured*, *cited* or *invented*, or a line of "Where the model
  lies" does, of the same number;
- it names the level of a percentile: 99 % where the page speaks of P99.

The scanners have tests of their own, so that one that finds nothing cannot pass for a clean book.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from tests.test_apparatus import (
    FENCE,
    GLOSSARY,
    LITERAL_DIRECTIVES,
    glossary_entries,
    term_targets,
)
from tools.golden import is_notebook

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for page in sorted((ROOT / "chapters").rglob("*.md")) if is_notebook(page)]

UNIT = (
    r"%|per\s?cent\b|percent\b|×|x\b|times\b|fold\b"
    r"|(?:ns|µs|us|ms|s|sec|seconds?|milliseconds?|microseconds?|minutes?|hours?|h)\b"
    r"|(?:[kKMGT]i?B|bytes?|[GT]?FLOPS?)\b|(?:tok|requests?)(?:/s\b|\s(?:a|per)\ssecond\b)"
    r"|tokens?\b|W\b|[GM]Hz\b"
)
DIGITS = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?)"
NUMBER = re.compile(
    rf"(?<![\w.,/^])(?:(?P<other>{DIGITS})\s?(?:to|and|or|–)\s?)?[-−]?(?P<number>{DIGITS})"
    rf"[-\s]?(?:(?:k|million|billion)\s)?(?P<unit>{UNIT})"
)
LISTED = re.compile(r"\s*[-*]\s")
PLAIN_WORDS = {"prompt", "request", "step", "token"}  # the introduction explains them
LIES = "Where the model lies"
READING = re.compile(r"Reading time\W+(?:about )?(\d+)\s+minutes")
MARKED = re.compile(r"\b(?:measured|cited|invented)\b", re.IGNORECASE)
RATIO = re.compile(r"%|per\s?cent|×|x\b|times|fold")


@dataclass
class Block:
    """A paragraph, list item, table row or caption."""

    section: str
    around: tuple[str, ...]  # the directives that it stands in
    lines: list[tuple[int, str]]

    @property
    def text(self) -> str:
        """The lines without roles and formulas, code in ⟨⟩; as many lines as before."""
        text = "\n".join(line for _, line in self.lines)

        def role(match: re.Match[str]) -> str:
            name, content = match[1], match[2]
            lines = "\n" * content.count("\n")
            if name.startswith(("cite", "glue")):
                return f"⟦{name[:4]}⟧{lines}"
            return lines if name == "numref" else re.sub(r"\s*<[^>]*>$", "", content)

        text = re.sub(r"\{([\w:-]+)\}`([^`]*)`", role, text)
        text = re.sub(r"(`+)(?!`)(.*?)(?<!`)\1(?!`)", r"⟨\2⟩", text, flags=re.DOTALL)
        for literal in (r"\$[^$]+\$", r"\]\([^)]*\)", r"<?https?://\S+"):
            text = re.sub(literal, lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
        return re.sub(r"\*+|_(?=\w)|(?<=\w)_", "", text)

    def sentences(self) -> Iterator[tuple[int, str, set[str]]]:
        """Yield each sentence: the number of its line, its text, the numbers in its code spans."""
        text, start = READING.sub("", self.text), 0
        ends = [found.end() for found in re.finditer(r"[.!?]\)?(?=\s+[A-Z(\[⟦“\"])", text)]
        for end in [*ends, len(text)]:
            sentence = text[start:end]
            line = self.lines[text.count("\n", 0, start)][0]
            spans = re.findall("⟨(.*?)⟩", sentence, re.DOTALL)
            words = re.sub("⟨[^⟩]*⟩", lambda m: "\n" * m[0].count("\n"), sentence)
            yield line, words, {plain(n) for n in re.findall(DIGITS, " ".join(spans))}
            start = end


@dataclass
class Page:
    """A chapter taken apart."""

    blocks: list[Block] = field(default_factory=list)
    code: dict[str, set[str]] = field(default_factory=dict)  # the numbers, by section
    figures: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    bare: list[int] = field(default_factory=list)  # the lines of pictures that are no figures
    lines_of_code: int = 0  # those that a reader sees


def plain(number: str) -> str:
    """Return a number without what only makes it readable: 4,000 and 4_000 are 4000."""
    return f"{float(re.sub('[,_]', '', number)):.10g}"


def numbers_in(code: str) -> set[str]:
    """Return the numbers that a piece of code names."""
    found = re.findall(r"(?<![\w.])(?:\d[\d_]*\.?[\d_]*|\.\d+)(?:e[-+]?\d+)?", code)
    return {plain(number) for number in found}


def take_apart(source: str) -> Page:
    """Return a chapter's text and code, separated."""
    page = Page()
    section, literal, lines = "", "", source.splitlines()
    fences: list[tuple[str, str]] = []
    gated: list[str] = []
    block: list[tuple[int, str]] = []
    cell: list[tuple[int, str]] = []

    def flush() -> None:
        if block:
            around = (*gated, *(name for _, name in fences))
            page.blocks.append(Block(section, around, block[:]))
            block.clear()

    in_header = lines[:1] == ["---"]
    for number, line in enumerate(lines, 1):
        if in_header:
            in_header = number == 1 or line != "---"
            continue
        match = FENCE.match(line)
        fence, info = match.groups() if match else ("", "")
        if literal:
            if (fence[:1] == literal[0] and len(fence) >= len(literal) and not info) or (
                literal in ("$$", "\\end") and line.strip().startswith(literal)
            ):
                code_of(page, section, cell)
                cell, literal = [], ""
            else:
                cell.append((number, line))
            continue
        directive = re.match(r"\{([\w:-]+)\}\s*(.*)", info)
        if fence:
            flush()
            if directive and directive[1] not in LITERAL_DIRECTIVES:
                name = directive[1]
                if name.endswith("-start"):
                    gated.append(name.removesuffix("-start"))
                elif name.endswith("-end") and gated:
                    gated.pop()
                fences.append((fence, name))
                block.append((number, directive[2]))
                flush()
            elif not info and fences and fences[-1][0] == fence:
                fences.pop()
            else:
                literal = fence
                cell = [(0, directive[1] if directive else "")]
        elif line.strip().startswith("$$") and line.count("$$") == 1:
            flush()
            literal, cell = "$$", [(0, "math")]
        elif heading := re.match(r"#+ (.*)", line):
            flush()
            if line.startswith("## "):
                section = heading[1]
            block.append((number, heading[1]))
            flush()
        elif re.match(r"\s*:\w+:", line) or line.startswith("% "):
            flush()
        else:
            if not line.strip() or re.match(r"\s*(?:[-*+]|\d+\.|:) |\|", line):
                flush()
            if line.strip():
                block.append((number, line))
    flush()
    return page


def code_of(page: Page, section: str, cell: list[tuple[int, str]]) -> None:
    """Note what a cell holds: its numbers, and its figure's caption and alt text."""
    if not cell or cell[0][1] != "code-cell":
        return
    body = cell[1:]
    text = "\n".join(line for _, line in body)
    header = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    figure = (yaml.safe_load(header[1]) or {}).get("mystnb", {}) if header else {}
    code = text[header.end() :] if header else text
    live = bool(re.search(r"\b(explore|stepper)\(", code))
    if "figure" in figure:
        said = {**figure["figure"], "alt": figure.get("image", {}).get("alt", ""), "live": live}
        page.figures[said.get("name", f"line {body[0][0]}")] = body[0][0], said
        for key in filter(said.get, ("caption", "alt")):
            first = next(i for i, (_, line) in enumerate(body) if f"{key}:" in line)
            length = len(str(said[key]).splitlines())
            inside = body[first][1].rstrip().endswith(("|", ">"))
            lines = body[first + 1 : first + 1 + length] if inside else [body[first]]
            page.blocks.append(Block(section, ("caption",), lines))
    elif live or re.search(r"\bplots\.(?!axes\b)\w+\(", code):
        page.bare.append(body[0][0])
    page.code.setdefault(section, set()).update(numbers_in(code))
    if "remove-" not in text.partition("\n")[0]:
        page.lines_of_code += len(code.splitlines())


def scaled(number: str, unit: str) -> set[str]:
    """Return how code may write a number: 2 s as 2000 (ms), 95 % as 0.95, 4 KiB as 4096."""
    value = float(number)
    if RATIO.match(unit):
        factors = [1, 0.01]
    elif re.match(r"[kKMGT]i?B", unit):
        factors = [1, 1e3, 1e6, 1e9, 1e12, 1024, 1024**2, 1024**3]
    elif unit.startswith("token"):
        factors = [1]
    else:
        factors = [1, 1e3, 1e6, 1e9, 1e-3, 60, 3600]
    return {f"{value * factor:.10g}" for factor in factors}


def unfounded(source: str) -> list[tuple[int, str]]:
    """Return line and text of each number of a chapter that nothing vouches for."""
    page = take_apart(source)
    everywhere = set().union(*page.code.values())
    marked = {
        plain(found["number"])
        for block in page.blocks
        if block.section == LIES and MARKED.search(block.text)
        for found in NUMBER.finditer(block.text)
    }
    given = {  # by the exercises, for their solutions
        plain(number)
        for block in page.blocks
        if "exercise" in block.around
        for number in re.findall(DIGITS, block.text)
    }
    bad = []
    head = ""  # the row of names of the table that we are in
    for block in page.blocks:
        first = block.lines[0][1]
        head = (head or block.text) if first.startswith("|") else ""
        chosen = block.section == "Predict" and re.match(r"\s*(?:[-*]|\d\.)\s", first)
        if chosen or "exercise" in block.around:
            continue
        for line, sentence, spans in block.sentences():
            if "⟦cite⟧" in sentence + head or MARKED.search(sentence):
                continue
            for found in NUMBER.finditer(sentence):
                unit = found["unit"]
                known = page.code.get(block.section, set()) if RATIO.match(unit) else everywhere
                numbers = [plain(n) for n in (found["other"], found["number"]) if n]
                level = "%" in unit and f"P{numbers[-1]}" in source
                sure = marked | spans | (given if "solution" in block.around else set())
                if not level and not all(n in sure or scaled(n, unit) & known for n in numbers):
                    at = line + sentence.count("\n", 0, found.start())
                    bad.append((at, " ".join(found[0].split())))
    return bad


def unnumbered(source: str) -> list[str]:
    """Return what is wrong with a chapter's figures."""
    bad = []
    page = take_apart(source)
    for name, (line, said) in page.figures.items():
        if not name.startswith("fig-"):
            bad.append(f"line {line}: the figure has no name that starts with fig-")
        if not str(said.get("caption", "")).strip():
            bad.append(f"{name} has no caption")
        if not (said["alt"] or said["live"]):  # a live figure carries its own words
            bad.append(f"{name} has no alt text")
        if not re.search(rf"\{{numref\}}`(?:[^`<]*<)?{re.escape(name)}>?`", source):
            bad.append(f"{name} is not referred to")
    return bad + [f"line {line}: a picture that is no figure" for line in page.bare]


def unanswered(source: str) -> list[str]:
    """Return the exercises that have neither a solution that runs, nor one in words, nor need one.

    Who works by hand or answers an open question may find the solution in words.
    """
    bad, run = [], dict.fromkeys(re.findall(r"\{solution\} *([\w-]+)", source), False)
    for gated in re.finditer(
        r"\{solution-start\} *([\w-]+)(.*?)\{solution-end\}", source, re.DOTALL
    ):
        run[gated[1]] = "{code-cell}" in gated[2]
    pattern = r"^```\{exercise(?:-start)?\} *([^\n]*)\n(.*?)^```(?:\{exercise-end\})?$"
    for found in re.finditer(pattern, source, re.DOTALL | re.MULTILINE):
        title, body = found[1], found[2]
        label = re.search(r":label: *([\w-]+)", body)
        name = label[1] if label else title
        text = body if "exercise-start" not in found[0] else source[found.end() :][:200]
        words = f"{title} {text}"
        if not label or (name not in run and not re.search(r"\bOpen\b", words)):
            bad.append(f"{name or 'an exercise'} has no solution")
        elif not run.get(name, False) and not re.search(r"\b(?:Open|[Bb]y hand|pencil)\b", words):
            bad.append(f"the solution of {name} runs nothing, and it is not by hand or open")
    return bad


def unlinked(source: str, entries: list[tuple[list[str], str]]) -> list[str]:
    """Return the glossary's terms that the objectives use and the page never links to."""
    goals = "\n".join(
        line
        for block in take_apart(source).blocks
        if not block.section and block.around == ("admonition",) and LISTED.match(block.lines[0][1])
        for _, line in block.lines
    )
    goals = re.sub(r"\{term\}`[^`]*`", "", goals)
    linked = {term.lower() for term in term_targets(source)}
    bad = []
    for terms, _ in entries:
        names = {term.lower() for term in terms}
        used = [
            term for term in terms if re.search(rf"\b{re.escape(term)}s?\b", goals, re.IGNORECASE)
        ]
        if used and not names & (linked | PLAIN_WORDS):
            bad.append(used[0])
    return bad


def reading_minutes(source: str) -> float:
    """Return about how long a chapter takes: 220 words a minute, three seconds a line of code."""
    page = take_apart(source)
    return sum(len(b.text.split()) for b in page.blocks) / 220 + page.lines_of_code / 20


# --- The book -----------------------------------------------------------------------------


def named(page: Path) -> str:
    """Name a page in a test's report."""
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(params=PAGES, ids=named)
def page(request: pytest.FixtureRequest) -> Path:
    """Each chapter."""
    return Path(request.param)


def test_every_number_comes_from_somewhere(page: Path) -> None:
    found = unfounded(page.read_text(encoding="utf-8"))
    assert [f"{named(page)}:{line}: {number}" for line, number in found] == []


def test_every_figure_is_captioned_described_and_referred_to(page: Path) -> None:
    assert unnumbered(page.read_text(encoding="utf-8")) == []


def test_every_exercise_has_its_solution(page: Path) -> None:
    assert unanswered(page.read_text(encoding="utf-8")) == []


def test_terms_in_the_objectives_are_linked(page: Path) -> None:
    entries = glossary_entries(GLOSSARY.read_text(encoding="utf-8"))
    assert unlinked(page.read_text(encoding="utf-8"), entries) == []


def test_the_reading_time_is_told_and_is_about_right(page: Path) -> None:
    source = page.read_text(encoding="utf-8")
    told = READING.search(source)
    assert told, "no **Reading time** in the box at the top"
    assert int(told[1]) == pytest.approx(reading_minutes(source), rel=0.3, abs=3)


# --- The scanners see what they should ----------------------------------------------------

INVENTED = """---
kernelspec: x
---
# A chapter

## First

The gap falls by 37 % and
ends at 812.5 ms. It falls {glue:text}`far` ms. A paper says 44 % {cite}`a2020x`. It took `cost=12`,
12 ms in all. There are 3 requests in 2 steps, P99, {term}`P95`, and $71 \\%$ in a formula.
- The price is 71 GB (*invented*), said {ref}`here <sec-99>`; and 4,000 tokens, or 2.5 s.

| model | memory |
| --- | --- |
| small | 17 GB |

```{code-cell} ipython3
---
mystnb:
  figure:
    name: fig-good
    caption: |
      It is 5 times as fast
      as 9 to 11 ms.
  image:
    alt: It is 6 times as fast.
---
requests = poisson(rate=4_000, seed=2500)  # 60 percent
```

## Second

So 60 % of 2.5 s. It says 19 GB. A value that 99 % do not exceed is P99.

```{exercise}
Let a step last 77 ms.
```

## Where the model lies

- 19 GB: *cited*.
"""


def test_unfounded_numbers_are_seen() -> None:
    assert unfounded(INVENTED) == [
        (8, "37 %"),
        (9, "812.5 ms"),
        (15, "17 GB"),
        (23, "5 times"),
        (24, "9 to 11 ms"),
        (26, "6 times"),
        (33, "60 %"),
    ]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("ends at 812.5 ms", "ends at 812.5 ms (*measured*)"),
        ("ends at 812.5 ms", "ends {cite:t}`a2020x` at 812.5 ms"),
        ("ends at 812.5 ms", "ends at {glue:text}`end` ms"),
        ("rate=4_000", "rate=0.8125"),
        ("19 GB: *cited*", "812.5 ms: *cited*"),
    ],
)
def test_founded_numbers_are_let_pass(before: str, after: str) -> None:
    changed = INVENTED.replace(before, after)
    assert changed != INVENTED
    assert (9, "812.5 ms") not in unfounded(changed)


def test_a_number_in_a_chapter_is_seen() -> None:
    """One fabricated sentence in a real page, and nothing else."""
    texts = [page.read_text(encoding="utf-8") for page in PAGES]
    source = next(text for text in texts if "\n## What you should" in text)  # a chapter's
    lines = source.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("## What you should"))
    lines.insert(place + 1, "\nThat is 8,765 ms, or 43.21 % more.\n")
    before, after = unfounded(source), unfounded("\n".join(lines))
    assert sorted(number for _, number in set(after) - set(before))[-2:] == ["43.21 %", "8,765 ms"]
    assert (place + 3, "8,765 ms") in after


FIGURES = """
See {numref}`fig-a` and {numref}`the figure <fig-b>`.

```{code-cell} ipython3
---
mystnb:
  figure:
    name: fig-a
    caption: Seen.
  image:
    alt: Words.
---
_ = plots.lines(x)
```
```{code-cell} ipython3
---
mystnb:
  figure:
    name: fig-b
    caption: Moves.
---
explore("servesim.figs:x")
```
"""


def test_faulty_figures_are_seen() -> None:
    assert unnumbered(FIGURES) == []
    assert unnumbered(FIGURES.replace("<fig-b>", "")) == ["fig-b is not referred to"]
    assert unnumbered(FIGURES.replace("alt: Words.", "width: 3")) == ["fig-a has no alt text"]
    assert unnumbered(FIGURES.replace("caption: Seen.", "align: left")) == ["fig-a has no caption"]
    assert "starts with fig-" in unnumbered(FIGURES.replace("name: fig-a", "align: left"))[0]
    bare = FIGURES + "```{code-cell} ipython3\nexplore('servesim.figs:x')\n```\n"
    assert unnumbered(bare) == ["line 25: a picture that is no figure"]


def test_exercises_without_a_solution_are_seen() -> None:
    exercise = "```{exercise} Two\n:label: ex-a\nDo it.\n```\n"
    words = "```{solution} ex-a\nDone.\n```\n"
    code = "```{code-cell} ipython3\n1\n```\n"
    runs = f"```{{solution-start}} ex-a\n```\n{code}```{{solution-end}}\n```\n"
    assert unanswered(exercise) == ["ex-a has no solution"]
    assert unanswered(exercise + runs) == []
    assert unanswered(exercise + runs.replace(code, "Done.\n")) == unanswered(exercise + words)
    assert unanswered(exercise + words) == [
        "the solution of ex-a runs nothing, and it is not by hand or open"
    ]
    assert unanswered(exercise.replace("Two", "By hand") + words) == []
    assert unanswered(exercise.replace("Two", "Open: why?")) == []


def test_terms_without_a_link_are_seen() -> None:
    entries = [(["token budget"], ""), (["TTFT"], ""), (["token"], "")]
    box = ":::{admonition} Goals\n- set a token budget for TTFT\n:::\n"
    assert unlinked(box, entries) == ["token budget", "TTFT"]
    assert unlinked(box + "A {term}`budget <token budget>` and {term}`TTFT`.", entries) == []
