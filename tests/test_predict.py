"""Questions whose choices answer on the spot."""

import html
import re
from pathlib import Path

import jupytext
import pytest

from servesim.errors import InputError
from servesim.predict import predict
from tools.golden import MYST, code_cells, read_with_golden

ROOT = Path(__file__).resolve().parent.parent
ASKING = [p for p in sorted((ROOT / "chapters").glob("*.md")) if "## Predict" in p.read_text()]

WAIT = predict(
    "Who waits <longest>?",
    {"`r0`, the first.": "It came first.", "r1 & r2.": "Both came late."},
    answer="b",
)


def closed(markup: str) -> list[tuple[str, str]]:
    """Return each disclosure of some HTML: what is seen of it, and what it hides."""
    found = re.findall(r"<details([^>]*)><summary>(.*?)</summary>(.*?)</details>", markup)
    assert not [attributes for attributes, _, _ in found if "open" in attributes]
    return [(text(shown), text(hidden)) for _, shown, hidden in found]


def text(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]*>", "", markup))


def test_each_choice_hides_what_belongs_to_it_and_nothing_else_tells() -> None:
    markup = WAIT.to_html()
    assert closed(markup) == [
        ("(a) r0, the first.", "No. It came first."),
        ("(b) r1 & r2.", "Yes. Both came late."),
    ]
    seen = text(re.sub(r"(?s)</summary>.*?</details>", "", markup))
    assert not re.search(r"Yes|No\b|came", seen)
    assert "<code>r0</code>" in markup
    assert "<script" not in markup
    assert "id=" not in markup  # a page may ask twice


def test_the_right_and_a_wrong_choice_differ_in_words_only() -> None:
    """Neither a class nor an order of attributes may give the answer away."""
    (first, second) = re.findall(r"<details[^>]*><summary>", WAIT.to_html())
    assert first == second


def test_what_a_terminal_shows_keeps_the_answer() -> None:
    assert repr(WAIT).splitlines()[:3] == [
        "Who waits <longest>?",
        "(a) r0, the first.",
        "(b) r1 & r2.",
    ]
    assert "came" not in repr(WAIT)
    assert (WAIT.feedback("a"), WAIT.feedback("b")) == (
        "No. It came first.",
        "Yes. Both came late.",
    )


def test_on_paper_the_answer_comes_after_all_choices() -> None:
    paper = WAIT._repr_mimebundle_()["text/markdown"]
    asked, _, answered = paper.partition("*Answer.*")
    assert "- (a) `r0`, the first.\n- (b) r1 & r2." in asked
    assert "came" not in asked
    assert answered == " (a) No. It came first. (b) Yes. Both came late."


@pytest.mark.parametrize(
    ("question", "choices", "answer", "words"),
    [
        (" ", {"x": "1", "y": "2"}, "a", "the question is empty"),
        ("Q", {"x": "1"}, "a", "from 2 to 26 choices, not 1"),
        ("Q", {"x": "1", "y": " "}, "a", "choice 'y' needs a text and something to say"),
        ("Q", {"x": "1", "y": "2"}, "c", "one of a, b: 'c'"),
        ("Q", {"x": "1", "y": "2"}, "ab", "one of a, b: 'ab'"),
        ("Q", {"x": "1", "y": "2"}, "", "one of a, b: ''"),
    ],
)
def test_what_cannot_be_asked_is_a_sentence(
    question: str, choices: dict[str, str], answer: str, words: str
) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        predict(question, choices, answer=answer)


def test_a_choice_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(InputError, match="no choice 'z'"):
        WAIT.feedback("z")


# --- The chapters


@pytest.mark.parametrize("chapter", ASKING, ids=lambda p: p.stem)
def test_a_chapter_asks_before_it_tells(chapter: Path) -> None:
    """The answer is in no text, and in no code that is shown before the choices."""
    source = chapter.read_text(encoding="utf-8")
    section = source[source.index("## Predict") :].split("\n## ")[0]
    assert ":class: dropdown" not in section
    assert "predict(" in section
    asking = section[: section.rindex("answer=") + 20]
    cells = [c for c in code_cells(jupytext.read(chapter, fmt=MYST)) if c.source in asking]
    assert len(cells) >= 2
    for cell in cells:
        tags = cell.metadata.get("tags", [])
        if "predict(\n" in cell.source:
            assert tags == ["remove-input"]
            assert cell.metadata["jupyter"] == {"source_hidden": True}
        else:  # it computes the numbers
            assert tags == ["remove-cell"]


@pytest.mark.parametrize("chapter", ASKING, ids=lambda p: p.stem)
def test_the_numbers_of_a_chapters_answers_are_computed(chapter: Path) -> None:
    """A number in what is said about a choice stands in braces, or in the question or choices."""
    for cell in code_cells(read_with_golden(chapter)):
        if "predict(\n" not in cell.source:
            continue
        asked = re.sub(r"(?m)^ {12}.*$", "", cell.source)
        said = re.sub(r"\{[^{}]*\}", "", "".join(re.findall(r"(?m)^ {12}f?\"(.*)\"", cell.source)))
        section = chapter.read_text(encoding="utf-8").split("## Predict")[1].split("\n## ")[0]
        prose = re.sub(r"(?s)```.*?```", "", section)
        known = re.findall(r"\d[\d,.]*\d|\d", asked + prose)
        unknown = [
            n for n in re.findall(r"(?<![\w.])\d[\d,.]*\d|(?<![\w.])\d", said) if n not in known
        ]
        assert unknown == [], cell.source
