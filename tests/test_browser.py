"""The built book in a browser, with no network but the book's own server.

They need a built site: `make pages`, or `pytest tests/test_browser.py --site _build/html`. The
book is served below a path, as on the web, and every figure's picture is compared, byte for
byte, with what CPython draws here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import threading
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from html.parser import HTMLParser
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest

from servesim.page import answer
from tests import sameness

playwright_api = pytest.importorskip("playwright.sync_api", reason="the extra `dev` brings it")
import serve  # noqa: E402
import shots  # noqa: E402

ROOT = Path(__file__).resolve().parent.parent
AXE = ROOT / "_build" / "axe-core" / "axe.min.js"
BELOW = "/some/book/"
START_MS = 60_000  # a machine that does ten other things; what it took is measured, not tested

# What axe finds in markup that is not ours: the rule, and which elements.
NOT_OURS = {
    "label-content-name-mismatch": ".search-button-field, .theme-switch-button",  # the theme
    "region": ".sidebar-primary-items__start > .sidebar-primary-item",
    "definition-list": "dt.sig > dl",  # Sphinx: the parameters of a long signature
    "aria-allowed-role": "[role=doc-biblioentry]",  # docutils: the list of references
    "aria-deprecated-role": "[role=doc-biblioentry]",
    "aria-required-children": ".citation-list",
}


# ------------------------------------------------------------------------ the built site


class Live(NamedTuple):
    """A live figure: the page it is on, and its attributes."""

    page: str
    id: str
    target: str
    params: str
    exercise: bool


class FindLive(HTMLParser):
    """Collects the live figures of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if any(name == "data-live" for name, _ in attrs):
            self.found.append({name: value or "" for name, value in attrs})


@cache  # asked for once per test, and the pages are long
def live_figures(site: Path, page: str) -> list[Live]:
    parser = FindLive()
    parser.feed((site / page).read_text(encoding="utf-8"))
    return [
        Live(page, f["id"], f["data-live"], f["data-params"], "live-exercise" in f["class"])
        for f in parser.found
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Test every page, every figure and every exercise there is; what is the same for all, once.

    With --long each page in both themes at both widths, and each figure also where it is no
    more than a picture.
    """
    site, long = metafunc.config.getoption("--site"), metafunc.config.getoption("--long")
    marker = metafunc.definition.get_closest_marker
    pages = shots.pages_of(site) if site else []
    figures = [live for page in pages for live in live_figures(site, page)]
    if "theme" in metafunc.fixturenames:
        both = [(page, theme) for page in pages for theme in ("light", "dark")]
        turns = [(page, ("light", "dark")[i % 2]) for i, page in enumerate(pages)]
        metafunc.parametrize(("name", "theme"), both if long else turns)
    elif "name" in metafunc.fixturenames:
        metafunc.parametrize("name", pages)
    if "live" in metafunc.fixturenames:
        plain = [live for live in figures if not live.exercise]
        # One that takes its time to draw, as a stepper does not.
        some = [live for live in plain if '"steps"' not in live.params][:1]
        if marker("every_figure"):
            some = figures if long else plain[::6] if marker("picture") else plain
        if marker("stepper"):
            kinds = {live: {spec["kind"] for spec in json.loads(live.params)} for live in plain}
            some = [live for live in plain if {"steps", "choice"} <= kinds[live]]
            # One whose runs differ in length, as the introduction's.
            some = sorted(some, key=lambda live: not live.page.endswith("intro.html"))[:1]
        metafunc.parametrize("live", some, ids=lambda live: live.id)
    if "exercise" in metafunc.fixturenames:
        some = [live for live in figures if live.exercise]
        some = some if marker("every_figure") else some[:1]
        metafunc.parametrize("exercise", some, ids=lambda live: live.id)
    if "asking" in metafunc.fixturenames:
        texts = {page: (site / page).read_text(encoding="utf-8") for page in pages}
        asking = [page for page, text in texts.items() if 'class="predict"' in text]
        metafunc.parametrize("asking", asking)


class Handler(serve.Handler):
    """Serves the book below a path, writes down what was asked for, and can lack a file."""

    asked: list[str]
    lacking: str

    def send_head(self) -> Any:
        path = urllib.parse.urlsplit(self.path).path
        self.asked.append(path)
        if not path.startswith(BELOW) or (self.lacking and path.endswith(self.lacking)):
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.path = path.removeprefix(BELOW.rstrip("/"))
        return super().send_head()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Site(NamedTuple):
    address: str
    handler: type[Handler]


@contextmanager
def serving(folder: Path) -> Iterator[Site]:
    handler = type("OneSite", (Handler,), {"asked": [], "lacking": ""})

    def make(*args: Any) -> Handler:
        return handler(*args, directory=str(folder))

    with ThreadingHTTPServer(("127.0.0.1", 0), make) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield Site(f"http://127.0.0.1:{server.server_port}{BELOW}", handler)
        server.shutdown()


@pytest.fixture(scope="module")
def folder(pytestconfig: pytest.Config) -> Path:
    site: Path | None = pytestconfig.getoption("--site")
    if site is None:
        pytest.skip("no built site was named: run `make pages`, or add --site _build/html")
    assert (site / "index.html").is_file(), f"{site} holds no book: run `make site`"
    return site


@pytest.fixture(scope="module")
def browser(folder: Path) -> Iterator[Any]:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        why = "these tests need the program chromium (Debian: apt-get install chromium)"
        pytest.fail(why) if os.environ.get("CI") else pytest.skip(why)
    # No name but the server's resolves, whoever asks: a page, a worker, the browser itself.
    alone = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*shots.FLAGS, alone])
        yield browser
        browser.close()


@pytest.fixture
def site(folder: Path) -> Iterator[Site]:
    with serving(folder) as site:
        yield site


# --------------------------------------------------------------------------- one reader

# Writes down when a control was moved and when a picture came.
WATCH = """
window.moved = 0; window.drawn = []; window.long = 0;
addEventListener("input", () => { window.moved = performance.now(); }, true);
addEventListener("live:drawn", ({ target, detail }) => {
  window.drawn.push({ id: target.id, ms: performance.now() - window.moved, ...detail });
});
"""
# Accessibility: each rule that is broken, and by which element.
VIOLATIONS = """async (notOurs) => {
  const { violations } = await axe.run();
  return violations.flatMap(({ id, nodes }) =>
    nodes
      .filter(({ target: [at] }) => !document.querySelector(at).matches(notOurs[id] ?? "none"))
      .map(({ target: [at], failureSummary }) => `${id}: ${at}: ${failureSummary}`));
}"""
METERED = "Object.defineProperty(navigator, 'connection', { value: { saveData: true } });"


# What the controls of a figure hold.
VALUES = """root => Object.fromEntries(
  [...root.querySelector("form").elements].filter((e) => e.name).map((e) => [e.name, e.value]))"""


def until(page: Any, expression: str, *, arg: Any = None, timeout: float = START_MS) -> None:
    """Wait until an expression, or a function of `arg`, is true on the page.

    Playwright's own `wait_for_function` calls `eval`, which the pages forbid.
    """
    end = time.monotonic() + timeout / 1000
    while not page.evaluate(expression, arg):
        if time.monotonic() > end:
            raise AssertionError(f"never came true: {expression} of {arg}")
        page.wait_for_timeout(20)


class Reader:
    """A browser window on the book, and what went wrong in it."""

    def __init__(self, context: Any, site: Site) -> None:
        self.page, self.site, self.wrong = context.new_page(), site, list[str]()
        context.on("request", self._on_request)
        self.page.on("pageerror", lambda error: self.wrong.append(f"script error: {error}"))
        self.page.on("response", self._on_response)
        self.page.on("console", self._on_console)

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.site.address, "data:", "blob:", "about:", "file:")):
            self.wrong.append(f"asks another host for {request.url}")

    def _on_response(self, response: Any) -> None:
        if response.status >= 400:
            self.wrong.append(f"{response.status} for {response.url}")

    def _on_console(self, message: Any) -> None:
        if "Content Security Policy" in message.text:
            self.wrong.append(message.text)

    def open(self, name: str) -> Reader:
        self.page.goto(self.site.address + name)
        return self

    def figure(self, live: Live) -> Figure:
        return Figure(self.page, live)


class Figure:
    """A live figure as its reader sees it."""

    def __init__(self, page: Any, live: Live) -> None:
        self.page, self.live = page, live
        self.root = page.locator(f"[id='{live.id}']")
        self.form, self.status = self.root.locator("form"), self.root.locator("[role=status]")

    @property
    def state(self) -> str | None:
        state: str | None = self.root.get_attribute("data-state")
        return state

    def wait(self, *states: str) -> None:
        any_of = ", ".join(f"[id='{self.live.id}'][data-state={state}]" for state in states)
        self.page.wait_for_selector(any_of, state="attached", timeout=START_MS)

    def start(self) -> None:
        """Scroll to it, which starts it."""
        self.root.scroll_into_view_if_needed()
        self.wait("ready")

    def values(self) -> dict[str, str]:
        values: dict[str, str] = self.root.evaluate(VALUES)
        return values

    def svg(self) -> str:
        svg: str = self.root.locator(".live-picture svg").first.evaluate("e => e.outerHTML")
        return svg

    def drawn(self, move: Callable[[], object]) -> dict[str, Any]:
        """Return what was drawn after a move: the last picture, once it shows the last values."""
        before = self.page.evaluate("window.drawn.length")
        move()
        # The values as they are then: a stepper may have to take one back.
        until(
            self.page,
            f"([n, id]) => {{ const values = ({VALUES})(document.getElementById(id));"
            " return drawn.length > n"
            " && JSON.stringify(drawn.at(-1).values) === JSON.stringify(values) }",
            arg=[before, self.live.id],
        )
        last: dict[str, Any] = self.page.evaluate("drawn.at(-1)")
        return last

    def drag(self, slider: Any, to: float) -> None:
        """Drag a slider's thumb to a place between its ends (0 to 1)."""
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        at = slider.evaluate("e => (e.value - e.min) / (e.max - e.min)")
        y, thumb = box["y"] + box["height"] / 2, 16
        mouse, width = self.page.mouse, box["width"] - thumb
        mouse.move(box["x"] + thumb / 2 + at * width, y)
        mouse.down()
        mouse.move(box["x"] + thumb / 2 + to * width, y, steps=5)
        mouse.up()


def in_cpython(live: Live, values: dict[str, str], **more: object) -> dict[str, Any]:
    """Return what this Python draws for a figure of the page, or says about an exercise."""
    question = {"target": live.target, "id": live.id, "params": live.params, "values": values}
    reply: dict[str, Any] = json.loads(answer(json.dumps(question | more)))
    return reply


@pytest.fixture
def reader(browser: Any, site: Site) -> Iterator[Callable[..., Reader]]:
    """Return a function that opens a window."""
    contexts = []

    def make(
        *, script: str = "", width: int = 1280, theme: str = "light", **options: Any
    ) -> Reader:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.grant_permissions(["clipboard-read", "clipboard-write"])
        mode = f"localStorage.setItem('mode', '{theme}'); localStorage.setItem('theme', '{theme}');"
        context.add_init_script(f"try {{ {mode} }} catch {{}}\n{WATCH}\n{script}")
        contexts.append(context)
        return Reader(context, site)

    yield make
    for context in contexts:
        context.close()


# --------------------------------------------------------------------------- every page


def test_a_page(reader: Any, site: Site, name: str, theme: str) -> None:
    """No errors, no other host, no sideways scrolling, no violation, nothing fetched in vain."""
    widths = (1280, 360) if theme == "light" else (360, 1280)
    window = reader(theme=theme, width=widths[0], script=METERED).open(name)
    page = window.page
    page.wait_for_load_state("networkidle")
    page.evaluate("window.MathJax?.startup?.promise")
    assert page.evaluate("document.documentElement.dataset.theme") == theme
    page.add_style_tag(content="* { transition: none !important; animation: none !important }")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert page.evaluate(VIOLATIONS, NOT_OURS) == []
    assert page.evaluate(shots.OVERFLOW) == ""
    page.set_viewport_size({"width": widths[1], "height": 900})
    page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
    assert page.evaluate(shots.OVERFLOW) == ""
    assert not [path for path in site.handler.asked if "/pyodide/" in path]
    assert window.wrong == []


def test_a_page_with_code_opens_where_it_runs(pytestconfig: pytest.Config, name: str) -> None:
    """On Binder its source; in JupyterLite the notebook made of it, which must be there."""
    site = pytestconfig.getoption("--site")
    page = (site / name).read_text(encoding="utf-8")
    chapter, runs = name.removesuffix(".html"), "cell_input" in page
    binder = re.findall(r'"https://mybinder\.org/v2/[^"]*\?urlpath=lab/tree/([^"]*)"', page)
    lite = re.findall(r'/lite/lab/index\.html\?path=([^"]*)"', page)
    assert (binder, lite) == ([f"{chapter}.md"], [f"{chapter}.ipynb"]) if runs else ([], [])
    if runs and (site / "lite").is_dir():
        assert (site / "lite" / "files" / f"{chapter}.ipynb").is_file()


def test_a_link_with_values_leads_to_this_copy_of_the_book(reader: Any, site: Site) -> None:
    """It names the published page, as in print; a click opens the figure here, with the values."""
    page = reader().open("chapters/for-instructors.html").page
    links = page.locator("a[href*='?servesim-figs-']")
    lead = links.evaluate_all("all => all.map((e) => e.href)")
    assert lead
    assert [to for to in lead if not to.startswith(f"{site.address}chapters/")] == []
    many = page.locator("a[href*='chunked.long_percent=50']").first
    many.click()
    page.wait_for_url("**/chapters/chunked-prefill.html?*")
    control = page.locator("input[name=long_percent]")
    control.wait_for(state="attached")
    assert control.input_value() == "50"
    assert page.locator("input[name=token_budget]").input_value() == "128"


# ------------------------------------------------------------------------- every figure


@pytest.mark.every_figure
def test_a_figure(
    reader: Any,
    live: Live,
    pytestconfig: pytest.Config,
    record_property: Callable[[str, object], None],
) -> None:
    """Every control, by keyboard and by drag, shows what CPython draws; so do reset and link."""
    window = reader().open(live.page)
    page, figure = window.page, window.figure(live)
    first, times = figure.svg(), []

    def check(move: Callable[[], object]) -> None:
        last = figure.drawn(move)
        expected = in_cpython(live, figure.values())
        expected.pop("limits", None)  # what a stepper's slider ends at: tested below
        assert {key: last[key] for key in ("picture", "numbers")} == expected
        times.append(last["ms"])
        shown = "m => { const t = document.createElement('template'); t.innerHTML = m;"
        shown += " return t.content.querySelector('svg').outerHTML }"
        assert figure.svg() == page.evaluate(shown, expected["picture"])
        assert figure.root.locator(".live-picture svg").count() == 1
        assert figure.state == "ready"

    # From cold: the first move comes before Python is there.
    figure.root.scroll_into_view_if_needed()
    control = figure.form.locator("input, select").first
    check(lambda: control.press("ArrowRight"))
    cold = times.pop()
    assert figure.svg() != first

    for slider in figure.form.locator("input[type=range]").all():
        output = figure.form.locator(f"output[for='{slider.get_attribute('id')}']")
        for key in ("Home", "End", "ArrowLeft"):
            check(lambda slider=slider, key=key: slider.press(key))
            assert output.inner_text() == slider.input_value()
        before = figure.svg()
        check(lambda slider=slider: figure.drag(slider, 0.25))
        assert figure.svg() != before, f"dragging {slider.get_attribute('name')} shows nothing"
    for choice in figure.form.locator("select").all():
        for option in choice.locator("option").all_inner_texts():
            if choice.input_value() != option:
                check(lambda choice=choice, option=option: choice.select_option(option))

    # A link to these values, copied, opens the page with them.
    chosen, seen = figure.values(), figure.svg()
    link = figure.form.get_by_role("link", name="Link to th")
    link.click()
    figure.status.filter(has_text="Copied").wait_for()
    address = page.evaluate("navigator.clipboard.readText()")
    assert address == page.url == link.evaluate("e => e.href")
    check(lambda: figure.form.locator("button[type=reset]").click())
    assert figure.svg() == first

    # Python starts once more for it, so quickly for one figure only.
    if pytestconfig.getoption("--long") or live.target.endswith(":chunked"):
        page.goto("about:blank")
        page.goto(address)
        until(page, "drawn.length > 0", timeout=START_MS)
        assert (figure.values(), figure.svg()) == (chosen, seen)
    assert window.wrong == []
    record_property(
        "measured",
        f"{live.id}: first move {cold / 1000:.1f} s from cold, then {median(times):.0f} ms median, "
        f"{max(times):.0f} ms at most, over {len(times)} moves",
    )


def is_what_was_built(figure: Figure) -> None:
    """The picture, its sentence and its table stand there, and no dead control does."""
    assert figure.root.locator(".live-picture svg").first.is_visible()
    assert figure.root.locator(".live-summary").inner_text()
    assert figure.root.locator("table").count() == 1
    assert not figure.form.is_visible()


@pytest.mark.every_figure
@pytest.mark.picture
def test_without_javascript(reader: Any, live: Live) -> None:
    window = reader(java_script_enabled=False).open(live.page)
    is_what_was_built(window.figure(live))
    assert "let the page run JavaScript" in window.figure(live).status.inner_text()


@pytest.mark.every_figure
@pytest.mark.picture
def test_opened_as_a_file(reader: Any, folder: Path, live: Live) -> None:
    window = reader()
    window.page.goto((folder / live.page).resolve().as_uri())
    is_what_was_built(window.figure(live))
    assert "read it from a web server" in window.figure(live).status.inner_text()


# ---------------------------------------------------------- exercises and predictions


@pytest.mark.every_figure
def test_an_exercise(reader: Any, exercise: Live) -> None:
    """Numbers are judged as CPython judges them; how it goes comes when all are right."""
    window = reader().open(exercise.page)
    page, figure = window.page, window.figure(exercise)
    root, form = figure.root, figure.form
    figure.start()
    fields = form.locator(".exercise-answer input").all()
    outputs = form.locator(".exercise-answer output")

    def judged(move: Callable[[], object], given: list[str] | None) -> dict[str, Any]:
        """Make a move; return what was said, which is what CPython says."""
        page.evaluate(
            "() => { window.said = null;"
            " addEventListener('exercise:judged', (e) => { said = e.detail }, { once: true }) }"
        )
        move()
        until(page, "window.said")
        said: dict[str, Any] = page.evaluate("said")
        assert said == in_cpython(exercise, figure.values(), given=given)
        assert outputs.all_inner_texts() == said["says"]
        assert figure.status.inner_text() == said["status"]
        return said

    first = figure.svg()
    # Nothing is redrawn for what one writes; Enter in a field has it checked.
    fields[0].fill("-1")
    said = judged(lambda: fields[0].press("Enter"), ["-1", "", ""])
    assert said["right"] == [False] * 3
    assert fields[0].get_attribute("aria-invalid") == "true"
    assert figure.svg() == first
    assert root.locator(".exercise-worked").inner_text() == ""
    # What was said is about the number before.
    fields[0].fill("-2")
    assert outputs.all_inner_texts() == ["", *said["says"][1:]]

    said = judged(form.get_by_role("button", name="Show the answers").click, None)
    answers = [text.split()[0].removesuffix(".") for text in said["says"]]
    worked = figure.svg()
    assert worked != first
    assert root.locator(".live-picture svg").count() == 1

    # The next seed: another task, empty fields.
    figure.drawn(form.get_by_role("button", name="Another seed").click)
    assert figure.values() == {"seed": "1"}
    assert [field.input_value() for field in fields] == ["", "", ""]
    assert outputs.all_inner_texts() == ["", "", ""]
    assert root.locator(".exercise-worked").inner_text() == ""

    # Back, with all of it right.
    figure.drawn(form.locator("button[type=reset]").click)
    assert figure.svg() == first
    for field, answer_ in zip(fields, answers, strict=True):
        field.fill(answer_)
    said = judged(form.get_by_role("button", name="Check").click, answers)
    assert said["right"] == [True] * 3
    assert figure.svg() == worked
    assert root.locator(".exercise-worked table").count() == 1
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert page.evaluate(VIOLATIONS, NOT_OURS) == []
    assert window.wrong == []


def test_an_exercise_without_javascript(reader: Any, exercise: Live) -> None:
    """The task stands there, and the solution of the first seed is folded below."""
    window = reader(java_script_enabled=False).open(exercise.page)
    solution = window.page.locator(f"[id='{exercise.id}'] + .exercise-solution")
    answers, worked = solution.locator("ul"), solution.locator("svg")
    assert not answers.is_visible()
    solution.locator("> summary").click()
    assert answers.is_visible()
    assert worked.is_visible()


def test_the_first_press_may_be_a_check(reader: Any, exercise: Live) -> None:
    """Where Python starts on a click only, that click is not lost."""
    window = reader(script=METERED).open(exercise.page)
    figure = window.figure(exercise)
    figure.form.locator(".exercise-answer input").first.fill("-1")
    figure.form.get_by_role("button", name="Check").click()
    figure.status.filter(has_text="of 3 right").wait_for(timeout=START_MS)
    until(window.page, "drawn.length > 0")
    outputs = figure.form.locator(".exercise-answer output").all_inner_texts()
    assert outputs == ["Not right: too low.", "No number yet.", "No number yet."]


def test_a_prediction(reader: Any, asking: str) -> None:
    """Each choice, by keyboard, tells its own answer and no other; no script is needed."""
    window = reader(java_script_enabled=False).open(asking)
    choices = window.page.locator(".predict-choice").all()
    assert len(choices) > 1
    assert not any(choice.locator("p").is_visible() for choice in choices)
    for i, choice in enumerate(choices):
        choice.locator("summary").focus()
        window.page.keyboard.press("Enter" if i % 2 else "Space")
        assert choice.locator("p").inner_text().startswith(("Yes.", "No."))
        assert not any(other.locator("p").is_visible() for other in choices[i + 1 :])


def test_open_predictions_are_accessible_and_fit_a_phone(reader: Any, asking: str) -> None:
    page = reader(width=360, script=METERED).open(asking).page
    page.evaluate("document.querySelectorAll('.predict-choice').forEach((e) => { e.open = true })")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    assert page.evaluate(VIOLATIONS, NOT_OURS) == []
    assert page.evaluate(shots.OVERFLOW) == ""


# ------------------------------------------------------------------------- the stepper


class Stepper(Figure):
    """A stepper as its reader sees it, and what it should show."""

    def __init__(self, page: Any, live: Live) -> None:
        super().__init__(page, live)
        self.slider = self.form.locator("input[data-steps]")
        self.choice = self.form.locator("select")

    @property
    def step(self) -> int:
        return int(self.slider.input_value())

    @property
    def last(self) -> int:
        return int(self.slider.get_attribute("max"))

    def button(self, name: str) -> Any:
        return self.form.get_by_role("button", name=name, exact=True)

    def moved(self, move: Callable[[], object], step: int) -> None:
        """Check that a move leads to a step, and that picture, limit and sentence say so."""
        drawn = self.drawn(move)
        expected = in_cpython(self.live, self.values())
        assert (self.step, drawn["picture"]) == (step, expected["picture"])
        assert self.last == expected["limits"]["step"]
        assert f"Step {step} begins" in self.root.locator(".live-summary").inner_text()
        for name, end in (("First step", 0), ("Next step", self.last)):
            assert self.button(name).get_attribute("aria-disabled") == json.dumps(step == end)

    def longest(self) -> str:
        """Choose each run in turn, and return the one with the most steps."""
        ends = {}
        for option in self.choice.locator("option").all_inner_texts():
            if option != self.choice.input_value():
                self.drawn(lambda option=option: self.choice.select_option(option))
            ends[option] = self.last
        assert len(set(ends.values())) > 1, "all runs are equally long: test another stepper"
        return max(ends, key=lambda option: ends[option])


@pytest.mark.stepper
def test_a_stepper_by_buttons_and_keys(reader: Any, live: Live) -> None:
    window = reader().open(live.page)
    figure = Stepper(window.page, live)
    figure.start()
    start, last, keys = figure.step, figure.last, window.page.keyboard
    assert 0 < start < last - 1
    figure.moved(figure.button("Next step").click, start + 1)
    figure.moved(figure.button("One step back").click, start)
    figure.moved(figure.button("Last step").click, last)
    # The keys work wherever the focus is in the figure; the button keeps it.
    figure.moved(lambda: keys.press("ArrowLeft"), last - 1)
    figure.moved(lambda: keys.press("Home"), 0)
    figure.moved(lambda: keys.press("ArrowRight"), 1)
    figure.moved(lambda: keys.press("End"), last)
    assert window.page.evaluate("document.activeElement.textContent").startswith("Last")
    figure.root.locator(".live-picture svg").click()
    figure.moved(lambda: keys.press("ArrowLeft"), last - 1)
    figure.moved(figure.button("First step").click, 0)
    # At the end a button does nothing, and in a list the keys belong to the list.
    before = window.page.evaluate("drawn.length")
    figure.button("One step back").click(force=True)
    keys.press("ArrowLeft")
    figure.choice.focus()
    keys.press("Home")
    window.page.wait_for_timeout(300)
    assert (figure.step, window.page.evaluate("drawn.length")) == (0, before)
    assert window.wrong == []


@pytest.mark.stepper
def test_a_stepper_plays_to_its_end(reader: Any, live: Live) -> None:
    window = reader().open(live.page)
    page, figure = window.page, Stepper(window.page, live)
    figure.start()
    last, summary = figure.last, figure.root.locator(".live-summary")
    figure.moved(figure.button("Last step").click, last)
    figure.moved(figure.button("One step back").click, last - 1)
    figure.moved(figure.button("One step back").click, last - 2)
    figure.slider.press("Space")
    assert figure.button("Pause").is_visible()
    assert summary.get_attribute("aria-live") == "off"
    until(page, "(last) => drawn.at(-1).values.step === String(last)", arg=last)
    figure.button("Play").wait_for()  # it stopped by itself
    assert summary.get_attribute("aria-live") == "polite"
    # Once more, from the start; whatever the reader does ends it.
    figure.drawn(figure.button("Play").click)
    assert figure.step == 0
    figure.moved(lambda: figure.slider.press("End"), last)
    assert figure.button("Play").is_visible()
    figure.button("Play").click()
    figure.drawn(figure.button("Reset").click)
    assert figure.button("Play").is_visible()
    # A picture that fails ends it, too.
    figure.root.evaluate("e => { e.dataset.live = 'servesim.figs:no_such_figure' }")
    figure.button("Play").click()
    figure.wait("error")
    figure.button("Play").wait_for()
    assert window.wrong == []


@pytest.mark.stepper
def test_a_link_opens_a_step_of_any_run(reader: Any, site: Site, live: Live) -> None:
    """The longest run has steps that the first picture knows nothing of."""
    window = reader().open(live.page)
    page, figure = window.page, Stepper(window.page, live)
    figure.start()
    first, start = figure.svg(), figure.step
    name, longest = figure.choice.get_attribute("name"), figure.longest()
    figure.drawn(lambda: figure.choice.select_option(longest))
    end = figure.last
    values = {name: longest, "step": end}
    query = urllib.parse.urlencode({f"{live.id}.{key}": value for key, value in values.items()})
    page.goto("about:blank")
    page.goto(f"{site.address}{live.page}?{query}#{live.id}")
    until(page, "drawn.length > 0", timeout=START_MS)
    assert (figure.step, figure.last) == (end, end)
    expected = in_cpython(live, figure.values())
    assert page.evaluate("drawn.at(-1).picture") == expected["picture"]
    # From there to a shorter run: its last step. And back to where the page began.
    other = next(o for o in figure.choice.locator("option").all_inner_texts() if o != longest)
    figure.drawn(lambda: figure.choice.select_option(other))
    assert figure.step == figure.last < end
    figure.moved(figure.button("Reset").click, start)
    assert figure.svg() == first
    # A step beyond any run is the last one.
    for far in ("999999", "99999999999999999999", "0xfffff"):
        beyond = query.replace(str(end), far)
        page.goto("about:blank")
        page.goto(f"{site.address}{live.page}?{beyond}#{live.id}")
        until(page, "drawn.length > 0", timeout=START_MS)
        assert (figure.step, figure.last) == (end, end)
    assert window.wrong == []


# ------------------------------------------------------------------ what can go wrong


@pytest.mark.parametrize(
    "file", ["worker.mjs", "pyodide.mjs", "servesim-lock.json", "pyodide.asm.wasm", ".whl"]
)
def test_python_that_cannot_start(reader: Any, site: Site, live: Live, file: str) -> None:
    site.handler.lacking = file
    window = reader().open(live.page)
    figure = window.figure(live)
    figure.root.scroll_into_view_if_needed()
    figure.wait("error")
    is_what_was_built(figure)
    assert figure.status.inner_text().startswith("The controls do not work here: ")
    assert all(wrong.startswith("404 for") for wrong in window.wrong)


def test_an_exception_is_a_sentence(reader: Any, live: Live) -> None:
    window = reader().open(live.page)
    figure = window.figure(live)
    figure.start()
    before, slider = figure.svg(), figure.form.locator("input").first
    figure.root.evaluate("e => { e.dataset.live = 'servesim.figs:no_such_figure' }")
    slider.press("ArrowRight")
    figure.wait("error")
    assert "no function 'no_such_figure'" in figure.status.inner_text()
    assert figure.svg() == before
    figure.root.evaluate("(e, target) => { e.dataset.live = target }", live.target)
    figure.drawn(lambda: slider.press("ArrowRight"))
    assert figure.state == "ready"
    assert figure.svg() != before
    assert window.wrong == []


def test_a_broken_python_is_started_again(reader: Any, live: Live) -> None:
    window = reader().open(live.page)
    figure = window.figure(live)
    figure.start()
    before, slider = figure.svg(), figure.form.locator("input").first
    status = {"name": "status", "kind": "number", "min": 0, "max": 9, "step": 1, "default": 1}
    figure.root.evaluate(
        "(e, params) => { Object.assign(e.dataset, { live: 'os:_exit', params });"
        " e.querySelector('input').name = 'status' }",
        json.dumps([status]),
    )
    slider.press("Home")
    figure.wait("error")
    assert figure.status.inner_text().startswith("The last picture stays: ")
    assert figure.svg() == before
    figure.root.evaluate(
        "(e, [live, params, name]) => { Object.assign(e.dataset, { live, params });"
        " e.querySelector('input').name = name }",
        [live.target, live.params, json.loads(live.params)[0]["name"]],
    )
    figure.drawn(lambda: slider.press("ArrowRight"))
    assert figure.state == "ready"
    assert window.wrong == []


def test_the_last_move_wins_and_the_page_stays_responsive(reader: Any, live: Live) -> None:
    window = reader().open(live.page)
    page, figure = window.page, window.figure(live)
    slider = figure.form.locator("input").first
    figure.root.scroll_into_view_if_needed()
    # While Python starts, numbers follow at once, and the page draws its frames.
    figure.wait("starting")
    page.evaluate(
        "() => { let last = performance.now(); const tick = (now) => {"
        " window.long = Math.max(window.long, now - last); last = now;"
        " requestAnimationFrame(tick) }; requestAnimationFrame(tick) }"
    )
    slider.press("Home")
    assert figure.form.locator("output").first.inner_text() == slider.input_value()
    figure.drawn(lambda: slider.press("ArrowRight"))

    def moves() -> None:
        slider.evaluate(
            "async (e) => { for (let i = 0; i < 40; i++) {"
            " i % 2 ? e.stepDown() : e.stepUp(2);"
            " e.dispatchEvent(new Event('input', { bubbles: true }));"
            " await new Promise((go) => setTimeout(go, 5)) } }"
        )

    before = page.evaluate("drawn.length")
    figure.drawn(moves)
    assert page.evaluate("drawn.length") - before < 40
    assert page.evaluate("window.long") < 1000
    assert window.wrong == []


def test_a_metered_connection_waits_for_a_click(reader: Any, site: Site, live: Live) -> None:
    window = reader(script=METERED).open(live.page)
    figure = window.figure(live)
    figure.root.scroll_into_view_if_needed()
    figure.form.locator("input").first.focus()
    figure.root.hover()
    window.page.wait_for_timeout(500)
    assert figure.state == "idle"
    assert "once, about 6 MB" in figure.status.inner_text()
    assert not [path for path in site.handler.asked if "/pyodide/" in path]
    figure.form.locator("input").first.click()
    figure.wait("ready")


def test_values_of_an_address_that_make_no_sense(reader: Any, site: Site, live: Live) -> None:
    names = [spec["name"] for spec in json.loads(live.params)]
    query = urllib.parse.urlencode({f"{live.id}.{name}": "<b>" for name in names})
    window = reader(script=METERED)
    expected = reader(script=METERED).open(live.page).figure(live).values()
    window.page.goto(f"{site.address}{live.page}?{query}#{live.id}")
    assert window.figure(live).values() == expected
    assert window.wrong == []


# ------------------------------------------------------------------------- JupyterLite


IDLE = ".jp-Notebook-ExecutionIndicator[data-status=idle]"
# Some cell has a number, none waits, and the kernel is idle for a second: between two cells it is
# so for a moment, and a folded cell shows no number.
ALL_RAN = """idle => {
  const prompts = [...document.querySelectorAll(".jp-InputPrompt")].map((e) => e.textContent);
  const ran = prompts.some((text) => /\\d/.test(text)) && !prompts.includes("[*]:");
  const now = performance.now();
  window.since = ran && document.querySelector(idle) ? window.since ?? now : undefined;
  return now - window.since > 1000;
}"""


class Lite:
    """JupyterLite as its reader sees it, and what the reader does in it."""

    def __init__(self, window: Reader) -> None:
        self.window, self.page = window, window.page
        self.page.set_default_timeout(4 * START_MS)

    def open(self, path: str) -> None:
        """Come to a file anew, as after closing the browser."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.window.site.address}lite/lab/index.html?path={path}")
        # It also opens what was open before, and that may come to lie on top.
        self.page.locator("#jp-main-dock-panel .lm-TabBar-tab", has_text=Path(path).name).click()

    def menu(self, menu: str, item: str) -> None:
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.get_by_text(item, exact=True).first.click()

    def run_all(self) -> None:
        """Run a notebook, and wait for its end."""
        self.page.locator(IDLE).wait_for(state="attached")
        self.menu("Run", "Run All Cells")
        self.page.wait_for_function(ALL_RAN, arg=IDLE)
        errors = self.page.locator("[data-mime-type='application/vnd.jupyter.error']")
        assert errors.all_inner_texts() == []

    def text(self) -> str:
        """Return the text of the open file."""
        text: str = self.page.locator(".jp-FileEditor .cm-content").inner_text()
        return text

    def asked_others(self) -> list[str]:
        """Return what was asked of another host.

        JupyterLite grumbles, and asks for its heart at the server's root.
        """
        own = f"http://{urllib.parse.urlsplit(self.window.site.address).netloc}/"
        return [w for w in self.window.wrong if "another host" in w and own not in w]


@pytest.fixture
def lite(reader: Any, folder: Path) -> Lite:
    if not (folder / "lite").is_dir():
        pytest.skip("this site was built without JupyterLite: run `make site`")
    return Lite(reader(script=METERED, accept_downloads=True))


def test_jupyterlite_runs_a_chapter(lite: Lite, folder: Path) -> None:
    """The launch button opens the chapter; all its cells run, and a slider moves the picture."""
    pages = [page for page in shots.pages_of(folder) if live_figures(folder, page)]
    name = min(pages, key=lambda page: (folder / page).stat().st_size)
    page = lite.window.open(name).page
    button = page.locator("a[href*='lite/lab/index.html']").first.evaluate("e => e.href")
    notebook = name.replace(".html", ".ipynb")
    assert button == f"{lite.window.site.address}lite/lab/index.html?path={notebook}"
    page.goto(button)
    lite.run_all()
    slider = page.locator(".jp-OutputArea .noUi-handle").first
    slider.wait_for(state="attached")
    picture = page.locator(".jp-OutputArea .widget-html .live-picture svg").first
    before = picture.evaluate("e => e.outerHTML")
    numbers = page.locator(".jp-OutputArea .live-table table").first
    assert not numbers.is_visible()
    page.get_by_text("Table of the numbers").first.click()
    numbers.wait_for()
    slider.focus()
    slider.press("ArrowRight")
    until(
        page,
        "before => document.querySelector('.jp-OutputArea .widget-html .live-picture svg')"
        ".outerHTML !== before",
        arg=before,
    )
    assert numbers.is_visible()
    assert lite.asked_others() == []


def test_jupyterlite_keeps_a_policy_and_gives_it_back(lite: Lite) -> None:
    """A policy is edited, survives a reload, is downloaded, runs, and can be reset."""
    page, mine = lite.page, "chapters/policies/my_policy.py"
    lite.open(mine)
    editor = page.locator(".jp-FileEditor .cm-content")
    editor.click()
    page.keyboard.press("Control+End")
    page.keyboard.insert_text("\n    edited = True\n")
    page.keyboard.press("Control+S")
    page.locator(".jp-mod-dirty").wait_for(state="detached")
    lite.open(mine)
    editor.filter(has_text="edited = True").wait_for()
    with page.expect_download() as download:
        lite.menu("File", "Download")
    assert "    edited = True\n" in Path(download.value.path()).read_text()

    lite.open("chapters/your-policy.ipynb")
    lite.run_all()
    outputs = page.locator(".jp-OutputArea-output")
    assert outputs.filter(has_text="edited = True").count() == 1
    assert outputs.filter(has_text="Continuous(max_running=16)").count() == 1
    page.locator(".jp-CodeCell .cm-content", has_text="# reset").click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text('reset("policies/my_policy.py")')
    page.keyboard.press("Shift+Enter")
    outputs.filter(has_text="Yours is kept as policies/my_policy_1.py").wait_for()

    lite.open(mine)
    editor.filter(has_text="class MyPolicy").wait_for()
    assert "edited" not in lite.text()
    lite.open("chapters/policies/my_policy_1.py")
    editor.filter(has_text="edited = True").wait_for()
    assert lite.asked_others() == []


# ------------------------------------------------------------- the tests could fail


def test_a_request_to_another_host_would_be_seen(reader: Any) -> None:
    window = reader(script=METERED).open("licenses.txt")  # which has no policy to forbid it
    window.page.evaluate(
        """() => new Promise((done) => {
          const code = "fetch('http://elsewhere.example/x').catch(() => postMessage(1))";
          new Worker(URL.createObjectURL(new Blob([code]))).onmessage = done; })"""
    )
    assert window.wrong == ["asks another host for http://elsewhere.example/x"]


# ------------------------------------------------------------------- the same digits here

# The page's Python on its own, without the page's script.
IN_THE_PAGES_PYTHON = """async ([home, source]) => {
  const { loadPyodide } = await import(home + "pyodide.mjs");
  const list = await (await fetch(home + "servesim-lock.json")).text();
  const python = await loadPyodide({
    indexURL: home, lockFileContents: list, packageBaseUrl: home,
  });
  await python.loadPackage("servesim");
  return python.runPython(source + "\\njson.dumps([sys.version, digests()])");
}"""


def test_the_page_s_python_gives_every_digit(reader: Any, site: Site) -> None:
    """Another release of Python, compiled for another machine: 20 seeds of every policy."""
    window = reader().open("search.html")
    source = Path(sameness.__file__).read_text(encoding="utf-8").partition("if __name__")[0]
    told = window.page.evaluate(
        IN_THE_PAGES_PYTHON, [f"{site.address}pyodide/", f"import sys\n{source}"]
    )
    version, found = json.loads(told)
    assert found == sameness.digests()
    assert version != sys.version
    assert window.wrong == []
