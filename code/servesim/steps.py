"""The control of a stepper: a slider over the steps of a run, with buttons to move and to play."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .checks import is_number
from .errors import InputError, brief
from .svg import element, esc

MOST_STEPS = 1_000_000

_BUTTONS = (
    # what it does, what it says, its name, its key
    ("first", "« First", "First step", "Home"),
    ("back", "‹ Back", "One step back", "ArrowLeft"),
    ("play", "Play", "Play", "Space"),
    ("next", "Next ›", "Next step", "ArrowRight"),
    ("last", "Last »", "Last step", "End"),
)
_KEYS = "Keys: ← and → to step, Home and End, space to play."


@dataclass(frozen=True, slots=True)
class Steps:
    """A step of a run: a whole number from 0 to an end that only the figure knows.

    How many steps there are depends on the other controls. So the figure says it with each
    picture, in ``Figure.limits``, and draws the last step if it is asked for one beyond.

    Parameters
    ----------
    default : int
        The step to start with.
    """

    default: int = 0
    name: str = "step"
    label: str = "Step"

    def clean(self, value: object) -> int:
        """Return the step, a whole number.

        Raises
        ------
        InputError
            If it is none, or below zero.
        """
        if not is_number(value) or not 0 <= value <= MOST_STEPS or value != int(value):
            raise InputError(
                f"explore: {self.name} must be a step, a whole number from 0 on, not {brief(value)}"
            )
        return int(value)

    def snap(self, value: float) -> int:
        """Return the step nearest to `value`, which may have been typed."""
        return self.clean(max(0, round(value)) if math.isfinite(value) else value)

    def check(self) -> None:
        """Raise InputError if there is no such step."""
        self.clean(self.default)

    def spec(self) -> dict[str, object]:
        """Return what a script on the page has to know."""
        return {"name": self.name, "kind": "steps", "default": self.default}

    def control(self, id: str, value: object, last: int | None = None) -> str:
        """Return the native slider and the buttons; `last` is the step at its end."""
        step = self.clean(value)
        buttons = [
            element(
                "button",
                says,
                type="button",
                data_go=go,
                aria_label=None if name == says else name,
                aria_keyshortcuts=key,
            )
            for go, says, name, key in _BUTTONS
        ]
        return (
            element("label", esc(self.label), for_=id)
            + element("output", str(step), for_=id)
            + element(
                "input",
                id=id,
                type="range",
                name=self.name,
                min="0",
                max=str(step if last is None else last),
                step="1",
                value=str(step),
                data_steps="",
                aria_describedby=f"{id}-keys",
            )
            + element("div", *buttons, class_="live-step-buttons", role="group")
            + element("p", _KEYS, id=f"{id}-keys", class_="live-keys")
        )

    def widget(self, lib: Any, value: object, last: int | None = None) -> Any:
        """Return the ipywidget: a slider."""
        step = self.clean(value)
        return lib.IntSlider(
            value=step,
            min=0,
            max=step if last is None else last,
            description=self.label,
            style={"description_width": "initial"},
            layout={"width": "32em", "max_width": "100%"},
        )

    def buttons(self, lib: Any, slider: Any) -> Any:
        """Return the ipywidgets that move the slider: four buttons, and one that plays."""

        def button(says: str, name: str, to: Any) -> Any:
            made = lib.Button(description=says, tooltip=name, layout={"width": "6em"})
            made.on_click(lambda _: setattr(slider, "value", min(max(0, to()), slider.max)))
            return made

        moves = {
            "first": lambda: 0,
            "back": lambda: slider.value - 1,
            "next": lambda: slider.value + 1,
            "last": lambda: slider.max,
        }
        # It runs in the reader's browser, so it is tied to the slider there.
        play = lib.Play(min=0, max=slider.max, value=slider.value, interval=1000, show_repeat=False)
        links = [
            lib.jslink((play, "value"), (slider, "value")),
            lib.jslink((slider, "max"), (play, "max")),
        ]
        box = lib.HBox(
            [
                play if go == "play" else button(says, name, moves[go])
                for go, says, name, _ in _BUTTONS
            ],
            layout={"flex_flow": "row wrap", "align_items": "center"},
        )
        box.links = links  # as long as the buttons are there
        return box
