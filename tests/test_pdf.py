"""What the printed book makes of outputs that are made for a screen; no LaTeX needed."""

from __future__ import annotations

import pytest
from docutils import nodes

from servesim import figs, svg
from servesim.book import Table
from servesim.drill import drill
from tools import pdf


def test_a_table_of_results_is_printed_as_a_table() -> None:
    results = Table([["policy", "gap <ms>", "note"], ["A & B", "1,234.5", ""], ["C", "-", "late"]])
    found = pdf.table(results._repr_html_())
    assert len(found) == 1
    cells = list(found[0].findall(nodes.entry))
    assert [cell.astext() for cell in cells] == [cell for row in results.rows for cell in row]
    is_right = ["text-right" in cell["classes"] for cell in cells]
    assert is_right == [False, True, False] * 3
    assert len(list(found[0].findall(nodes.thead))) == 1


def test_the_note_below_a_table_is_kept() -> None:
    html = Table([["a"], ["1"]])._repr_html_() + "<p>* is told</p>"
    assert pdf.table(html)[1].astext() == "* is told"


@pytest.mark.parametrize(
    ("size", "inches"), [((560, 300), "5.60in"), ((900, 300), "6.25in"), ((500, 1000), "3.30in")]
)
def test_a_picture_fits_the_page(size: tuple[int, int], inches: str) -> None:
    assert pdf.width(f'<svg width="{size[0]}" height="{size[1]}" font-size="14">') == inches


def test_a_live_figure_has_nothing_that_paper_cannot_show() -> None:
    plain = svg.flatten(figs.kv_blocks().svg)
    assert "var(" not in plain
    assert pdf.width(plain).endswith("in")


class Paper(pdf.Printable):
    """Prints without a document around it."""

    def __init__(self) -> None:
        pass

    def images(self, html: str) -> list[nodes.Element]:
        return [nodes.image() for _ in range(html.count("<svg"))]

    def address(self, page: str) -> nodes.reference:
        return nodes.reference("", page)


def test_an_exercise_is_printed_with_its_first_seed_and_then_its_solution() -> None:
    shown = drill("servesim.exercises:groups")
    first = shown.exercise(0)
    made = Paper().exercise(shown.to_html(), "chapters/x")
    kinds = [type(part).__name__ for part in made]
    assert kinds == [
        *("paragraph", "table", "image", "bullet_list", "paragraph"),
        *("paragraph", "image", "table"),
    ]
    assert made[0].astext() == first.summary
    assert made[3].astext().split("\n\n") == [ask.name for ask in first.asks]
    assert made[4].astext().endswith("are on its page: chapters/x.")
    for ask in first.asks:
        assert f"{ask.label}: {ask.told()}" in made[5].astext()
        assert all(f"{ask.label}: {ask.told()}" not in part.astext() for part in made[:5])
    given, worked = (made[i].astext() for i in (1, 7))
    assert "arrives (ms)" in given
    assert "idle slots" in worked
    assert first.summary not in given


def test_faults_are_seen_in_a_log() -> None:
    log = """
Missing character: There is no λ ("3BB) in font [some.otf]:!
Missing character: There is no λ ("3BB) in font [some.otf]:!
Overfull \\hbox (3.0pt too wide) in paragraph at lines 1--2
Overfull \\hbox (23.9pt too wide) in paragraph at lines 7--9
"""
    assert pdf.faults(log) == [
        "no λ in the font [some.otf]:",
        "24 pt too wide, in paragraph at lines 7--9",
    ]
    assert pdf.faults("Output written on book.xdv (10 pages).") == []


def test_what_is_missing_is_said_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(SystemExit) as stop:
        pdf.main()
    said = str(stop.value)
    assert said.startswith("make pdf needs latexmk, xelatex")
    assert "apt-get install" in said
    assert said.count(". ") == 0
    assert capsys.readouterr().out == ""
