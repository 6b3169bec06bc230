"""Sliders: one call that works in a kernel, on the page and in a terminal."""

from __future__ import annotations

import itertools
import json
import re
import sys
import types
import xml.etree.ElementTree as ET
from collections.abc import Callable
from typing import Any

import pytest

from servesim import svg
from servesim.errors import InputError
from servesim.explore import Explorer, explore, figure_id, render

VIEW = "application/vnd.jupyter.widget-view+json"
RATE: tuple[float, ...] = (1, 8, 0.5, 4)


def draw(
    rate: float, max_batch: int = 16, policy: str = "static", ghost: dict[str, Any] | None = None
) -> svg.Figure:
    if max_batch == 13:
        raise RuntimeError("thirteen <is>\n unlucky")
    chart = svg.Chart("Rate (requests/s)", "ITL (ms)")
    chart.line(policy, [1, 2, 3], [rate, max_batch, rate])
    if ghost is not None:
        chart.line("default run", [1, 2, 3], [ghost["rate"], 2, 3], ghost=True)
    summary = f"{policy}: rate {rate!r}, batch {max_batch!r}, ghost {ghost}"
    return svg.figure("x", chart, title="A chart", summary=summary, table=(["a"], [[rate]]))


def plain(n: int) -> str:
    return f"<svg><text>{n}</text></svg>"


def wrong(n: int) -> int:
    return n


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the functions above where `explore` can import them by name."""
    module = types.ModuleType("figures_of_a_test")
    module.draw, module.plain, module.wrong = draw, plain, wrong  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "figures_of_a_test", module)


def make(**more: Any) -> Explorer:
    return explore(
        "figures_of_a_test:draw",
        rate=RATE,
        max_batch=(1, 64, 1, 16),
        policy=["static", "continuous"],
        **{"caption": "A & B", "labels": {"rate": "Arrival <rate> (requests/s)"}} | more,
    )


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = types.SimpleNamespace(kernel=object())
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)


# ----------------------------------------------------------------------------- the page


def test_markup_is_the_one_agreed_on() -> None:
    root = ET.fromstring(make().to_html())
    assert root.get("data-live") == "figures_of_a_test:draw"
    assert root.get("data-state") == "idle"
    assert root.get("id") == "figures_of_a_test-draw"
    assert root.get("aria-label") == "A & B"
    assert len([e for e in root.iter() if e.tag.endswith("}svg")]) == 1
    assert len([e for e in root.iter() if e.get("role") == "status"]) == 1
    form = root.find("form")
    assert form is not None
    # Dead controls must not look alive: a script that can serve them shows them.
    assert form.get("hidden") is not None
    ranges = form.findall(".//input")
    assert [i.get("type") for i in ranges] == ["range", "range"]
    keys = ("name", "min", "max", "step", "value")
    assert [[i.get(k) for k in keys] for i in ranges] == [
        ["rate", "1", "8", "0.5", "4"],
        ["max_batch", "1", "64", "1", "16"],
    ]
    labels = {e.get("for"): e.text for e in form.iter("label")}
    outputs = {e.get("for"): e.text for e in form.iter("output")}
    assert [labels[i.get("id")] for i in ranges] == ["Arrival <rate> (requests/s)", "Max batch"]
    assert [outputs[i.get("id")] for i in ranges] == ["4", "16"]
    select = form.find(".//select")
    assert select is not None
    assert labels[select.get("id")] == "Policy"
    assert [(o.text, o.get("selected")) for o in select] == [
        ("static", "selected"),
        ("continuous", None),
    ]
    buttons = form.findall(".//button")
    assert [(b.get("type"), b.text) for b in buttons] == [("reset", "Reset")]
    link = form.find(".//a")
    assert link is not None
    assert link.get("href") == "#figures_of_a_test-draw"
    assert root.find(".//p[@class='live-summary']") is not None
    assert root.find(".//details//table") is not None


def test_params_are_readable_by_a_script() -> None:
    root = ET.fromstring(make().to_html())
    assert json.loads(root.get("data-params", "")) == [
        {"name": "rate", "kind": "number", "min": 1, "max": 8, "step": 0.5, "default": 4.0,
         "whole": False},
        {"name": "max_batch", "kind": "number", "min": 1, "max": 64, "step": 1, "default": 16,
         "whole": True},
        {"name": "policy", "kind": "choice", "options": ["static", "continuous"],
         "default": "static"},
    ]  # fmt: skip


def test_what_a_script_has_to_do() -> None:
    """Values from the page, through `render`, give the bytes that a kernel gives."""
    explorer = make()
    root = ET.fromstring(explorer.to_html())
    defaults = {p["name"]: p["default"] for p in json.loads(root.get("data-params", ""))}
    values = {"rate": 4.5, "max_batch": 2, "policy": "continuous"}
    on_the_page = render(
        root.get("data-live", ""), values, defaults=defaults, id=root.get("id", "")
    )
    explorer.set(**values)
    assert explorer.figure() == on_the_page
    assert on_the_page.picture_html() in explorer.to_html()
    assert on_the_page.numbers_html() in explorer.to_html()


def test_ids_follow_the_figure_so_a_page_can_show_it_twice() -> None:
    one, two = make().to_html(), make(id="second").to_html()
    ids = [re.findall(r'\sid="([^"]+)"', page) for page in (one, two)]
    assert all(len(i) == len(set(i)) for i in ids)
    assert not set(ids[0]) & set(ids[1])
    assert one == make().to_html()
    assert figure_id("servesim.figs:batching") == "servesim-figs-batching"


# --------------------------------------------------------------------------- everywhere


def test_mimebundle_without_a_kernel() -> None:
    bundle = make()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html"}
    assert bundle["text/plain"].startswith("A & B\n\nArrival <rate> (requests/s): 4\n")
    assert bundle == make()._repr_mimebundle_()


@pytest.mark.usefixtures("kernel")
def test_mimebundle_in_a_kernel() -> None:
    bundle = make()._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "text/html", VIEW}
    assert {k: v for k, v in bundle.items() if k != VIEW} == {
        k: v for k, v in make()._repr_mimebundle_().items() if k != VIEW
    }


@pytest.mark.usefixtures("kernel")
def test_without_ipywidgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)
    assert set(make()._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_without_ipython(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython", None)
    assert set(make()._repr_mimebundle_()) == {"text/plain", "text/html"}


def test_ghost_is_the_default_run_once_it_is_left() -> None:
    explorer = make()
    assert "ghost None" in explorer.figure().summary
    assert "'rate': 4.0" in explorer.figure(rate=5).summary
    assert "ghost None" in explorer.figure(rate=4).summary


def test_every_corner_draws_with_clean_numbers() -> None:
    explorer = explore("figures_of_a_test:draw", rate=(0.1, 0.7, 0.1, 0.3), max_batch=(2, 64, 2, 2))
    for rate, batch in itertools.product((0.1, 0.1 + 0.2, 0.7), (2, 64.0)):
        figure = explorer.figure(rate=rate, max_batch=batch)
        assert f"rate {round(rate, 1)!r}, batch {int(batch)!r}" in figure.summary


def test_a_plain_string_is_a_picture() -> None:
    explorer = explore("figures_of_a_test:plain", n=(1, 3, 1, 2))
    assert "<text>2</text>" in explorer.to_html()
    assert explorer._repr_mimebundle_()["text/plain"] == "N: 2\n\n(a picture)"


def test_choices_may_name_their_default() -> None:
    explorer = explore("figures_of_a_test:plain", n=([1, 2, 4], 2))
    assert explorer.values() == {"n": 2}


# ---------------------------------------------------------------------------- the kernel


def parts(explorer: Explorer) -> tuple[dict[str, Any], Any, Any, Any]:
    """Return inputs, reset button, status and picture of the widget view."""
    *inputs, button, status, picture, _ = explorer.widget().children
    return dict(zip(explorer.params, inputs, strict=True)), button, status, picture


def test_moving_a_widget_changes_the_picture() -> None:
    explorer = make()
    inputs, button, _, picture = parts(explorer)
    first = picture.value
    assert type(inputs["rate"]).__name__ == "FloatSlider"
    assert type(inputs["max_batch"]).__name__ == "IntSlider"
    inputs["rate"].value = 7.5
    assert explorer.values()["rate"] == 7.5
    assert "rate 7.5, batch 16" in picture.value
    inputs["policy"].value = "continuous"
    assert "continuous: rate 7.5" in picture.value
    button.click()
    assert explorer.values() == explorer.defaults
    assert inputs["rate"].value == 4
    assert inputs["policy"].value == "static"
    assert picture.value == first


def test_setting_values_moves_the_widgets() -> None:
    explorer = make()
    inputs, _, _, picture = parts(explorer)
    explorer.set(rate=2, policy="continuous")
    assert (inputs["rate"].value, inputs["policy"].value) == (2, "continuous")
    assert "continuous: rate 2.0" in picture.value
    explorer.reset()
    assert inputs["rate"].value == 4


def test_the_numbers_follow_and_stay_as_the_reader_left_them() -> None:
    explorer = make()
    inputs, *_, picture = parts(explorer)
    fold = explorer.widget().children[-1]
    (numbers,) = fold.children
    assert fold.selected_index is None
    assert fold.layout.display is None
    fold.selected_index = 0
    before = numbers.value
    inputs["rate"].value = 7.5
    assert fold.selected_index == 0
    assert numbers.value != before
    assert "<table" in numbers.value
    assert "<table" not in picture.value
    assert "<details" not in picture.value + numbers.value


def test_a_typed_value_goes_to_the_next_step() -> None:
    explorer = make()
    inputs, *_ = parts(explorer)
    inputs["rate"].value = 6.3
    assert explorer.values()["rate"] == 6.5
    assert inputs["rate"].value == 6.5


def test_an_exception_is_a_sentence_and_the_picture_stays() -> None:
    explorer = make()
    inputs, _, status, picture = parts(explorer)
    before = picture.value
    inputs["max_batch"].value = 13
    assert picture.value == before
    assert "RuntimeError: thirteen &lt;is&gt; unlucky" in status.value
    assert explorer.message in ET.fromstring(status.value).itertext()
    assert 'role="status"' in status.value
    inputs["max_batch"].value = 14
    assert "batch 14" in picture.value
    assert status.value == explorer.message == ""
    with pytest.raises(RuntimeError):
        explorer.figure(max_batch=13)


def test_a_view_shows_where_the_sliders_already_are() -> None:
    explorer = make()
    explorer.set(rate=6)
    inputs, _, _, picture = parts(explorer)
    assert inputs["rate"].value == 6
    assert "rate 6.0" in picture.value
    assert explorer.widget() is explorer.widget()


# ------------------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("target", "params", "words"),
    [
        ("draw", {}, "'module:function'"),
        ("no_such.module:draw", {}, "no module 'no_such.module'"),
        ("figures_of_a_test:drew", {}, "did you mean 'draw'?"),
        ("figures_of_a_test:draw", {}, "needs a value for 'rate'"),
        ("figures_of_a_test:draw", {"rate": RATE, "speed": RATE}, "takes rate, max_batch, policy"),
        ("figures_of_a_test:draw", {"rate": (1, 8, 0, 4)}, "step of rate must be above zero"),
        ("figures_of_a_test:draw", {"rate": (8, 1, 1, 4)}, "low to high"),
        ("figures_of_a_test:draw", {"rate": (1, 8, 1, 9)}, "rate must be from 1 to 8"),
        ("figures_of_a_test:draw", {"rate": (1, 8, 1, 4.5)}, "between two steps"),
        ("figures_of_a_test:draw", {"rate": (1, 8, 2, 3)}, "never reach the max of rate"),
        ("figures_of_a_test:draw", {"rate": (1, 8, 1, "4")}, "four finite numbers"),
        ("figures_of_a_test:draw", {"rate": (1, float("nan"), 1, 4)}, "four finite numbers"),
        ("figures_of_a_test:draw", {"rate": (1, 8)}, "(min, max, step, default)"),
        ("figures_of_a_test:draw", {"rate": []}, "no options"),
        ("figures_of_a_test:draw", {"rate": [1, 1]}, "twice"),
        ("figures_of_a_test:draw", {"rate": [None]}, "strings or numbers"),
        ("figures_of_a_test:draw", {"rate": ([1, 2], 3)}, "one of 1, 2"),
        ("figures_of_a_test:wrong", {"n": [1]}, "returned int"),
        ("figures_of_a_test:draw", {"rate": RATE, "labels": {"rat": "x"}}, "'rat'"),
        ("figures_of_a_test:draw", {"rate": RATE, "id": "a b"}, "'a b'"),
    ],
)
def test_misuse_is_one_sentence(target: str, params: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        explore(target, **params)
    assert words in str(caught.value)
    assert str(caught.value).startswith("explore: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (lambda e: e.set(speed=1), "no parameter 'speed'"),
        (lambda e: e.set(rate=9), "from 1 to 8"),
        (lambda e: e.set(rate=True), "must be a number"),
        (lambda e: e.figure(policy="magic"), "one of static, continuous"),
    ],
)
def test_a_wrong_move_leaves_everything(move: Callable[[Explorer], object], words: str) -> None:
    explorer = make()
    with pytest.raises(InputError, match=re.escape(words)):
        move(explorer)
    assert explorer.values() == explorer.defaults


def test_a_broken_module_keeps_its_own_error(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lacks_an_import.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_installed_anywhere"):
        explore("lacks_an_import:f")
