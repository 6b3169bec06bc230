"""Every live figure of the book at the ends of its controls and at random places between them.

The figures are read off the pages as they were last built: sliders, steppers, and exercises by
hand. Each is moved as a reader moves it and asked as the page's script asks.
"""

from __future__ import annotations

import html
import itertools
import json
import random
import re
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from servesim.exercises import Exercise
from servesim.explore import Explorer, Fixed, Slider, Steps, Value, explore
from servesim.page import answer, parameter
from servesim.svg import Figure, fmt

ROOT = Path(__file__).resolve().parent.parent
MARKUP = re.compile(
    r'<div class="live-fig[^"]*" id="([^"]+)" data-live="([^"]+)" data-state="idle"'
    r' data-params="([^"]+)"'
)
NO_NUMBER = re.compile(r"\b(?:nan|NaN|[iI]nf|Infinity|None)\b")
MOST_MIXES = 8  # of the ends of all controls; LONG tries up to 200
FEW, MANY = 5, 50
BEYOND = 10**6  # a step after the last of any run here: the last one is drawn


@dataclass(frozen=True)
class Live:
    """A live figure on a page: what `explore` wrote there."""

    page: str
    id: str
    target: str
    params: str

    def __str__(self) -> str:
        return f"{self.page}-{self.id.removeprefix('servesim-')}"

    def explorer(self) -> Explorer:
        known = [parameter(spec) for spec in json.loads(self.params)]
        fixed = {p.name: p.default for p in known if isinstance(p, Fixed)}
        params = {
            p.name: (p.min, p.max, p.step, p.default)
            if isinstance(p, Slider)
            else p
            if isinstance(p, Steps)
            else (list(p.options), p.default)
            for p in known
            if not isinstance(p, Fixed)
        }
        return explore(self.target, fixed=fixed, id=self.id, **params)

    def asked(self, values: dict[str, Value]) -> dict[str, Any]:
        """Return what the page is answered."""
        told = {name: f"{value:.12g}" if isinstance(value, float) else str(value)
                for name, value in values.items()}  # fmt: skip
        question = {"target": self.target, "id": self.id, "params": self.params, "values": told}
        found: dict[str, Any] = json.loads(answer(json.dumps(question)))
        return found


def on_pages() -> Iterator[Live]:
    for path in sorted((ROOT / "tests" / "golden").rglob("*.json")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        for cell in cells:
            for output in cell.get("outputs", ()):
                shown = "".join(output.get("data", {}).get("text/html", ""))
                for id, target, params in MARKUP.findall(shown):
                    yield Live(path.stem, id, target, html.unescape(params))


LIVE = list(on_pages())
each_figure = pytest.mark.parametrize("live", LIVE, ids=str)


# ----------------------------------------------------------------------------- the places


def ends(explorer: Explorer) -> list[dict[str, Value]]:
    """Return every mix of the ends of all controls; of a choice all options."""
    sides: list[tuple[Value, ...]] = []
    for p in explorer.params.values():
        if isinstance(p, Slider):
            sides.append((p.min, p.max))
        else:
            sides.append((0, BEYOND) if isinstance(p, Steps) else p.options)
    return [dict(zip(explorer.params, mix, strict=True)) for mix in itertools.product(*sides)]


def some_ends(explorer: Explorer, most: int, rng: random.Random) -> list[dict[str, Value]]:
    """Return all mixes if there are few, else all lowest, all highest and some of the others."""
    first, *others, last = ends(explorer)
    return [first, *rng.sample(others, min(len(others), most - 2)), last]


def somewhere(explorer: Explorer, rng: random.Random) -> dict[str, Value]:
    place: dict[str, Value] = {}
    for name, p in explorer.params.items():
        if isinstance(p, Slider):
            place[name] = p.snap(rng.uniform(p.min, p.max))
        else:
            place[name] = 0 if isinstance(p, Steps) else rng.choice(p.options)
    limits = explorer.figure(**place).limits  # how far a run goes is known when it is drawn
    return place | {name: rng.randint(0, last) for name, last in limits.items()}


# ----------------------------------------------------------------------------- the checks


def check(figure: Figure) -> None:
    """Check what must hold of any figure, whatever it shows."""
    picture = ET.fromstring(figure.svg)
    assert picture.tag.endswith("svg")
    ids = [found for e in picture.iter() if (found := e.get("id"))]
    assert len(ids) == len(set(ids))
    numbers = ET.fromstring(f"<div>{figure.numbers_html()}</div>")
    text = figure.to_text()
    for said in (figure.svg, figure.numbers_html(), text):
        assert not (bad := NO_NUMBER.search(said)), said[max(0, bad.start() - 60) : bad.end()]
    assert figure.summary
    assert figure.title
    assert "\n" not in figure.summary
    if figure.table is None:
        return
    header, rows = figure.table
    cells = [[fmt(cell) for cell in row] for row in rows]
    assert all(len(row) == len(header) for row in rows)
    body = numbers.find(".//tbody")
    assert body is not None
    assert [["".join(c.itertext()) for c in tr] for tr in body] == [
        [cell or " " for cell in row] for row in cells
    ]
    lines = text.splitlines()
    for row in cells:
        assert any(line.split() == " ".join(row).split() for line in lines), row


def forget() -> None:
    """Empty every cache of the simulator, so that all is computed anew."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "servesim":
            for member in list(vars(module).values()):
                if callable(clear := getattr(member, "cache_clear", None)):
                    clear()


def visit(live: Live, places: list[dict[str, Value]], explorer: Explorer) -> None:
    """Go from place to place and back to the first; the page must be told the same everywhere."""
    shown: list[tuple[dict[str, Value], Figure]] = []
    for place in places:
        explorer.set(**place)
        assert explorer.message == "", place
        figure, values = explorer.figure(), explorer.values()
        check(figure)
        if isinstance(figure, Exercise):
            check(figure.worked)
        fixed = {name: f.default for name, f in explorer.fixed.items()}
        told = live.asked(fixed | values)
        parts = {"picture": figure.picture_html(), "numbers": figure.numbers_html()}
        assert told == parts | ({"limits": dict(figure.limits)} if figure.limits else {})
        shown.append((values, figure))
    values, first = shown[0]
    explorer.set(**values)
    assert explorer.figure() == first
    explorer.reset()
    forget()
    assert live.explorer().figure(**values) == first


@each_figure
def test_at_the_ends_and_at_some_places_between(live: Live) -> None:
    explorer, rng = live.explorer(), random.Random(str(live))
    places = some_ends(explorer, MOST_MIXES, rng)
    visit(live, places + [somewhere(explorer, rng) for _ in range(FEW)], explorer)


@pytest.mark.long
@each_figure
def test_at_all_ends_and_at_many_places_between(live: Live) -> None:
    explorer, rng = live.explorer(), random.Random(f"{live}, long")
    places = some_ends(explorer, 200, rng)
    visit(live, places + [somewhere(explorer, rng) for _ in range(MANY)], explorer)


def test_all_live_figures_are_here() -> None:
    pages = [p.read_text(encoding="utf-8") for p in sorted((ROOT / "chapters").rglob("*.md"))]
    told = re.findall(r'^(?:explore|drill)\(\s*"([^"]+)"', "\n".join(pages), re.MULTILINE)
    assert len(told) > 20
    here = [live.target for live in LIVE]
    assert sorted(t for t in here if t != "servesim.figs:stepper") == sorted(told)
    assert here.count("servesim.figs:stepper") >= 5
