"""An exercise to work out by hand, checked on the spot, with another one a click away.

``drill("servesim.exercises:waits")`` shows seed 0 of an exercise (see `servesim.exercises`). In a
kernel fields and buttons are ipywidgets. On the static page they are native form controls, hidden
until a script on the page can run the same Python; without it the solution of seed 0 is folded
below. In a terminal there is the task.
"""

from __future__ import annotations

import importlib
import json
from typing import Any

from .checks import maybe, text
from .errors import InputError
from .exercises import Exercise
from .explore import Slider, figure_id, mimebundle, render
from .svg import element, esc

__all__ = ["Drill", "drill"]

SEED = Slider("seed", "Seed", 0, 99, 1, 0)

# Read where no script took over: without JavaScript, and in a page opened as a file.
_IDLE = (
    "This is seed 0; its solution is folded below. To have your numbers checked, and for other "
    "seeds, let the page run JavaScript and read it from a web server, or open it in Jupyter."
)


class Drill:
    """An exercise with fields for its answers; what `drill` returns. Display it as a last value."""

    def __init__(self, target: str, *, id: str | None = None) -> None:
        text(target=target)
        maybe(text, id=id)
        self.target, self.id = target, figure_id(target) if id is None else id
        self.seed = 0
        # An exercise that cannot draw its first seed is a mistake of its author: fail here.
        self.exercise(0)
        self._view: _View | None = None

    def exercise(self, seed: int) -> Exercise:
        """Return the exercise of a seed.

        Raises
        ------
        InputError
            If the seed is not from 0 to 99, or the function returns no exercise.
        """
        found = render(self.target, {"seed": SEED.clean(seed)}, id=self.id)
        if not isinstance(found, Exercise):
            raise InputError(f"drill: {self.target!r} returns no exercise; use explore(...) for it")
        return found

    # Where it is shown

    def widget(self) -> Any:
        """Return the ipywidgets view: the task, a field for each number, and buttons.

        Raises
        ------
        ImportError
            If ipywidgets is not installed.
        """
        if self._view is None:
            self._view = _View(self, importlib.import_module("ipywidgets"))
        return self._view.box

    def to_html(self) -> str:
        """Return the exercise for a static page; the markup is that of `explore`, and fields."""
        first = self.exercise(0)
        fields = []
        for i, ask in enumerate(first.asks):
            field, verdict = f"{self.id}-answer-{i}", f"{self.id}-verdict-{i}"
            fields.append(
                element(
                    "div",
                    element("label", esc(ask.name), for_=field),
                    element(
                        "input",
                        id=field,
                        type="number",
                        step="any",
                        inputmode="decimal",
                        aria_describedby=verdict,
                    ),
                    f'<output id="{verdict}" for="{field}"></output>',
                    class_="exercise-answer",
                )
            )
        legend = element("legend", "Your answers")
        form = element(
            "form",
            element("div", SEED.control(f"{self.id}-in-seed", 0), class_="live-control"),
            element("div", _button("Another seed", "exercise-next"), class_="exercise-other"),
            element("fieldset", legend, *fields, class_="exercise-answers"),
            element(
                "div",
                _button("Check", "exercise-check", type="submit"),
                _button("Show the answers", "exercise-show"),
                element("button", "Start again", type="reset", class_="live-reset"),
                element("a", "Link to this exercise", href=f"#{self.id}", class_="live-link"),
                class_="live-actions",
            ),
            class_="live-controls",
            autocomplete="off",
            hidden="hidden",
        )
        parts = [
            element("div", first.numbers_html(), class_="live-numbers-slot"),
            first.picture_html(),
            form,
            element("p", esc(_IDLE), class_="live-status", role="status"),
            '<div class="exercise-worked"></div>',
        ]
        live = element(
            "div",
            "\n".join(["", *parts, ""]),
            class_="live-fig live-exercise",
            id=self.id,
            data_live=self.target,
            data_state="idle",
            data_params=json.dumps([SEED.spec()]),
            role="group",
            aria_label=f"Exercise: {first.title}",
        )
        return f"{live}\n{self._solution()}"

    def _solution(self) -> str:
        """Return the answers of seed 0 and how it goes, folded."""
        first = self.exercise(0)
        answers = "".join(
            element("li", f"{esc(ask.label)}: {esc(ask.told())}") for ask in first.asks
        )
        return element(
            "details",
            element("summary", "Solution of seed 0"),
            element("ul", answers),
            first.worked.with_id(f"{self.id}-solution").to_html(),
            class_="live-fig exercise-solution",
        )

    def to_text(self) -> str:
        """Return the task of seed 0 as plain text."""
        return self.exercise(0).to_text()

    def __repr__(self) -> str:
        return f"drill({self.target!r})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return mimebundle(self)


def _button(name: str, kind: str, type: str = "button") -> str:
    return element("button", name, type=type, class_=f"live-button {kind}")


class _View:
    """The ipywidgets side of an exercise."""

    def __init__(self, drill: Drill, lib: Any) -> None:
        self._drill, self._lib = drill, lib
        first = drill.exercise(0)
        self.seed = SEED.widget(lib, 0)
        wide = {"description_width": "initial"}
        layout = {"width": "28em", "max_width": "100%"}
        self.fields = [
            lib.Text(description=ask.name, style=wide, layout=layout) for ask in first.asks
        ]
        self.verdicts = [lib.HTML() for _ in first.asks]
        self.task, self.status, self.worked = lib.HTML(), lib.HTML(), lib.HTML()
        self.next, self.check, self.show = (
            lib.Button(description=name) for name in ("Another seed", "Check", "Show the answers")
        )
        self.seed.observe(lambda _: self.pose(), "value")
        self.next.on_click(lambda _: self._another())
        self.check.on_click(lambda _: self.answer([field.value for field in self.fields]))
        self.show.on_click(lambda _: self.answer(None))
        rows = [lib.HBox(list(pair)) for pair in zip(self.fields, self.verdicts, strict=True)]
        choose, decide = lib.HBox([self.seed, self.next]), lib.HBox([self.check, self.show])
        self.box = lib.VBox([choose, self.task, *rows, decide, self.status, self.worked])
        self.pose()

    def _another(self) -> None:
        self.seed.value = (self.seed.value + 1) % (int(SEED.max) + 1)

    def pose(self) -> None:
        """Show the task of the present seed."""
        exercise = self._drill.exercise(self.seed.value)
        self.task.value = element("div", exercise.to_html(), class_="live-fig")
        self.status.value = self.worked.value = ""
        for field, verdict in zip(self.fields, self.verdicts, strict=True):
            field.value = verdict.value = ""

    def answer(self, given: list[str] | None) -> None:
        """Judge what stands in the fields, or show the answers."""
        reply = self._drill.exercise(self.seed.value).reply(given)
        for verdict, says in zip(self.verdicts, reply["says"], strict=True):
            verdict.value = esc(says)
        self.status.value = element("p", esc(reply["status"]), role="status")
        if "worked" in reply:
            body = reply["picture"] + reply["worked"]
            self.worked.value = element("div", body, class_="live-fig")


def drill(target: str, /, *, id: str | None = None) -> Drill:
    """Show an exercise that is checked on the spot.

    Parameters
    ----------
    target : str
        ``"servesim.exercises:waits"``: a function of a seed that returns an `Exercise`.
    id : str, optional
        Id on the page; needed if one page shows the same exercise twice.

    Returns
    -------
    Drill

    Raises
    ------
    InputError
        If there is no such function, or it returns no exercise.
    """
    return Drill(target, id=id)
