"""Exercises: every seed can be worked out, and the answers are those of a plain calculation."""

import html
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from servesim import exercises, svg
from servesim.drill import SEED, drill
from servesim.errors import InputError
from servesim.exercises import Ask, Exercise
from servesim.explore import explore
from servesim.page import answer
from tests import oracles

ROOT = Path(__file__).resolve().parent.parent
SEEDS = range(200)
Make = Callable[[int], Exercise]
NAMES = [name for name in exercises.__all__ if name.islower()]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def make(name: str, seed: int = 0) -> Exercise:
    found: Exercise = getattr(exercises, name)(seed)
    return found


def given(exercise: Exercise) -> list[list[float]]:
    """Return the numbers of the task's table, without the names of its rows."""
    assert exercise.table is not None
    return [[float(str(cell)) for cell in cells] for _, *cells in exercise.table.rows]


# --- Every seed of every exercise


def test_every_seed_can_be_worked_out_by_hand(name: str) -> None:
    """The answers are those of `oracles`, which knows the task's table and nothing else."""
    reference = getattr(oracles, f"work_out_{name}")
    labels, pictures, answers = set(), set(), set()
    for seed in SEEDS:
        exercise = make(name, seed)
        assert exercise.table is not None
        assert 3 <= len(exercise.table.rows) <= 6
        assert all(0 <= number < 10_000 for row in given(exercise) for number in row)
        told = [ask.answer for ask in exercise.asks]
        assert len(told) == 3
        assert all(math.isfinite(value) and 0 <= value < 1000 for value in told)
        assert len(set(told)) > 1
        for ask, value in zip(exercise.asks, reference(given(exercise)), strict=True):
            assert abs(ask.answer - value) <= ask.tolerance / 2 + 1e-9, (seed, ask, value)
        labels.add(tuple(ask.name for ask in exercise.asks))
        pictures.add(exercise.svg)
        answers.add(tuple(told))
    assert len(labels) == 1  # the fields of a page stay while seeds change
    assert len(pictures) > 100
    assert len(answers) > 12  # of counts there are not many more


def test_a_seed_always_gives_the_same(name: str) -> None:
    for seed in (0, 3, 99):
        assert make(name, seed) == make(name, seed)


def test_the_worked_picture_belongs_to_the_answers(name: str) -> None:
    exercise = make(name, 1)
    worked = exercise.worked
    assert worked.summary
    assert worked.table is not None
    assert worked.svg != exercise.svg
    assert worked.svg != make(name, 2).worked.svg


@pytest.mark.parametrize("seed", ["1", 1.0, None, True])
def test_a_seed_is_a_whole_number(name: str, seed: Any) -> None:
    with pytest.raises(InputError, match="the seed must be a whole number"):
        make(name, seed)


# --- What is said about a number


@pytest.mark.parametrize(
    ("text", "right", "says"),
    [
        ("30", True, "Right: 30 ms."),
        (" 30.05 ", True, "Right: 30 ms."),
        ("3e1", True, "Right: 30 ms."),
        ("30.2", False, "Not right: too high."),
        ("-30", False, "Not right: too low."),
        ("", False, "No number yet."),
        ("  ", False, "No number yet."),
        ("thirty", False, "Write a number."),
        ("nan", False, "Write a number."),
        ("inf", False, "Write a number."),
        ("<b>", False, "Write a number."),
    ],
)
def test_a_number_is_judged_in_words(text: str, right: bool, says: str) -> None:
    assert Ask("Wait of r2", "ms", 30.0, 0.1).check(text) == (right, says)


def test_how_it_goes_is_shown_once_all_are_right_or_on_demand(name: str) -> None:
    exercise = make(name, 4)
    answers = [str(ask.answer) for ask in exercise.asks]
    reply = exercise.reply([*answers[:2], "-1"])
    assert (reply["right"], sorted(reply)) == ([True, True, False], ["right", "says", "status"])
    assert reply["status"].startswith("2 of 3 right.")
    told = exercise.asks[2].told()
    assert told not in json.dumps(reply).replace(exercise.asks[0].told(), "").replace(
        exercise.asks[1].told(), ""
    )
    for done in (exercise.reply(answers), exercise.reply(None)):
        assert done["picture"] == exercise.worked.picture_html()
        assert done["worked"] == exercise.worked.numbers_html()
    assert exercise.reply(answers)["right"] == [True] * 3
    assert exercise.reply(None)["right"] == [None] * 3
    assert exercise.reply(None)["says"] == [f"{ask.told()}." for ask in exercise.asks]
    with pytest.raises(InputError, match="asks for 3 numbers, not 2"):
        exercise.reply(answers[:2])


def ask_page(target: str, seed: str, **more: object) -> dict[str, Any]:
    question = {"target": target, "id": "it", "params": json.dumps([SEED.spec()])}
    reply: dict[str, Any] = json.loads(
        answer(json.dumps(question | {"values": {"seed": seed}} | more))
    )
    return reply


def test_the_page_gets_what_a_kernel_gets() -> None:
    exercise = make("waits", 7).with_id("it")
    target = "servesim.exercises:waits"
    posed = {"picture": exercise.picture_html(), "numbers": exercise.numbers_html()}
    assert ask_page(target, "7") == posed
    assert ask_page(target, "7", given=None) == exercise.reply(None)
    assert ask_page(target, "7", given=["1", "", "x"]) == exercise.reply(["1", "", "x"])
    assert "asks for 3 numbers" in ask_page(target, "7", given=["1"])["message"]
    assert "'many'" in ask_page(target, "many", given=None)["message"]


# --- Where it is shown


def test_nothing_tells_the_answers_before_they_are_asked_for(name: str) -> None:
    """On the page they are folded, in a kernel they come on demand, a terminal shows the task."""
    shown = drill(f"servesim.exercises:{name}")
    live, folded = shown.to_html().split('<details class="live-fig exercise-solution">')
    answers = [ask.told() for ask in shown.exercise(0).asks]
    told = html.unescape(re.sub(r"<[^>]*>", " ", folded))
    assert all(f"{ask.label}: {ask.told()}" in told for ask in shown.exercise(0).asks)
    assert "worked out" not in live
    assert "Right" not in live
    # The whole task says no answer beside the question, nor does the terminal.
    for text in (shown.to_text(), html.unescape(re.sub(r"(?s)<svg.*?</svg>", "", live))):
        for ask, is_told in zip(shown.exercise(0).asks, answers, strict=True):
            assert not re.search(rf"{re.escape(ask.label)}\W+{re.escape(is_told)}", text)


def test_the_page_has_the_markup_that_its_script_expects() -> None:
    page = drill("servesim.exercises:waits", id="it").to_html()
    assert page.startswith('<div class="live-fig live-exercise" id="it" data-live="servesim.')
    assert page.count('role="status"') == 1
    assert page.count("<svg") == 2  # the task's, and the folded one
    assert page.count("<svg") == page.count('aria-labelledby="it-')
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    labeled = re.findall(r'<label for="([^"]+)"', page)
    assert labeled == ["it-in-seed", *(f"it-answer-{i}" for i in range(3))]
    assert set(labeled) <= set(ids)
    assert re.findall(r'<output[^>]* for="([^"]+)"', page) == labeled


def test_in_a_kernel_fields_and_buttons_do_the_same() -> None:
    shown = drill("servesim.exercises:waits")
    box = shown.widget()
    assert shown.widget() is box
    view = shown._view
    assert view is not None
    exercise = shown.exercise(0)
    assert exercise.summary.split(".")[0] in view.task.value

    view.fields[0].value = f"{exercise.asks[0].answer:g}"
    view.check.click()
    assert [v.value for v in view.verdicts] == exercise.reply(
        [f"{exercise.asks[0].answer:g}", "", ""]
    )["says"]
    assert "1 of 3 right" in view.status.value
    assert view.worked.value == ""
    view.show.click()
    assert exercise.worked.svg in view.worked.value

    view.next.click()
    assert view.seed.value == 1
    assert shown.exercise(1).svg in view.task.value
    assert [f.value for f in view.fields] == ["", "", ""]
    assert view.worked.value == view.status.value == ""
    for field, ask in zip(view.fields, shown.exercise(1).asks, strict=True):
        field.value = f"{ask.answer:.10g}"
    view.check.click()
    assert "All right" in view.status.value
    assert shown.exercise(1).worked.svg in view.worked.value
    view.seed.value = 99
    view.next.click()
    assert view.seed.value == 0


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("servesim.exercises:wait", "has no function 'wait'; did you mean 'waits'"),
        ("servesim.exercise", "names no function"),
        ("servesim.figs:arrivals", "has no parameter 'seed'"),
    ],
)
def test_what_is_no_exercise_is_a_sentence(target: str, words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)):
        drill(target)


def a_figure(seed: int) -> svg.Figure:
    return svg.figure("x", svg.Timeline(), title="It")


def test_a_figure_is_no_exercise() -> None:
    with pytest.raises(InputError, match="returns no exercise; use explore"):
        drill(f"{__name__}:a_figure")


def test_an_exercise_may_be_explored_all_the_same() -> None:
    """It is a figure, so that whatever treats all live figures alike treats it as well."""
    explorer = explore("servesim.exercises:waits", seed=(0, 99, 1, 0))
    assert explorer.figure(seed=5) == make("waits", 5).with_id("servesim-exercises-waits")


def test_each_exercise_stands_in_one_chapter() -> None:
    text = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "chapters").rglob("*.md"))
    used = re.findall(r'drill\("servesim\.exercises:(\w+)"\)', text)
    assert sorted(used) == sorted(NAMES)
