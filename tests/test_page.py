"""What the page's script calls, without a browser."""

import json
import sys
import types
import xml.etree.ElementTree as ET
from typing import Any

import pytest

from servesim import svg
from servesim.explore import explore
from servesim.page import answer, parameter


def draw(rate: float, n: int, policy: Any, ghost: dict[str, Any] | None = None) -> svg.Figure:
    if n == 13:
        raise RuntimeError("thirteen\nis unlucky")
    if n == 14:
        return draw(rate, n, policy, ghost)
    chart = svg.Chart("Rate (requests/s)", "ITL (ms)")
    chart.line("it", [1, 2], [rate, n])
    return svg.figure("x", chart, title="It", summary=f"{rate!r} {n!r} {policy!r} {ghost}")


EXPLORER: dict[str, Any] = {
    "rate": (1, 8, 0.1, 4.0),
    "n": (1, 64, 1, 16),
    "policy": [1, 2.0, "three"],
}


@pytest.fixture(autouse=True)
def module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("figures_of_a_page")
    module.draw = draw  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "figures_of_a_page", module)


def ask(**values: str) -> dict[str, str]:
    """Answer as the script asks: with attributes and control values as they stand in the page."""
    root = ET.fromstring(explore("figures_of_a_page:draw", **EXPLORER).to_html())
    held = {e.get("name", ""): e.get("value", "") for e in root.iter("input")} | {"policy": "1"}
    request = {
        "target": root.get("data-live"),
        "id": root.get("id"),
        "params": root.get("data-params"),
        "values": held | values,
    }
    reply: dict[str, str] = json.loads(answer(json.dumps(request)))
    return reply


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ({}, {}),
        ({"rate": "4.3", "n": "3"}, {"rate": 4.3, "n": 3}),
        ({"rate": "8", "policy": "2.0"}, {"rate": 8, "policy": 2.0}),
        ({"policy": "three"}, {"policy": "three"}),
        # Some browsers add up steps with an error in the last digits.
        ({"rate": "4.300000000000001"}, {"rate": 4.3}),
    ],
)
def test_the_page_gets_what_a_kernel_gets(text: dict[str, str], value: dict[str, Any]) -> None:
    figure = explore("figures_of_a_page:draw", **EXPLORER).figure(**value)
    assert ask(**text) == {"picture": figure.picture_html(), "numbers": figure.numbers_html()}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ({"n": "13"}, "RuntimeError: thirteen is unlucky"),
        ({"n": "14"}, "RecursionError"),
        ({"n": "many"}, "n must be a number, not 'many'"),
        ({"n": "nan"}, "n must be a number, not 'nan'"),
        ({"n": "inf"}, "n must be a number, not 'inf'"),
        ({"policy": "four"}, "policy must be one of 1, 2.0, three"),
    ],
)
def test_what_cannot_be_drawn_is_a_sentence(text: dict[str, str], words: str) -> None:
    (reply,) = ask(**text).items()
    assert reply[0] == "message"
    assert words in reply[1]
    assert "\n" not in reply[1]


def test_a_request_that_is_none_is_a_sentence_too() -> None:
    assert "message" in json.loads(answer("{}"))


def test_parameters_survive_the_way_through_the_page() -> None:
    explorer = explore("figures_of_a_page:draw", **EXPLORER)
    for known in explorer.params.values():
        again = parameter(json.loads(json.dumps(known.spec())))
        assert again.spec() == known.spec()
