"""What the page's script calls: a figure's values come in as text, its picture goes out.

The script (`_static/live`) runs this module in the reader's browser. It knows nothing of a
figure but the three attributes that `explore` wrote into the page, and what the controls hold.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .errors import InputError
from .exercises import Exercise
from .explore import Choice, Fixed, Parameter, Slider, Steps, Value, render, sentence

__all__ = ["answer", "parameter"]


def parameter(spec: Mapping[str, Any]) -> Parameter | Fixed:
    """Return the parameter that the `spec` of one described."""
    name = spec["name"]
    if spec["kind"] == "fixed":
        return Fixed(name, spec["default"])
    if spec["kind"] == "steps":
        return Steps(spec["default"], name, name)
    if spec["kind"] == "choice":
        return Choice(name, name, tuple(spec["options"]), spec["default"])
    return Slider(name, name, spec["min"], spec["max"], spec["step"], spec["default"])


def _read(known: Parameter | Fixed, values: Mapping[str, str]) -> Value:
    if isinstance(known, Fixed):
        return known.default
    text = values[known.name]
    if not isinstance(known, Choice):
        try:
            return known.snap(float(text))
        except (ValueError, OverflowError):
            raise InputError(f"explore: {known.name} must be a number, not {text!r}") from None
    # A page knows an option by what stands in the list: "4", or "4.0".
    return known.clean(next((o for o in known.options if str(o) == text), text))


def answer(request: str) -> str:
    """Draw one figure for the page.

    Parameters
    ----------
    request : str
        JSON: ``target``, ``id``, ``params`` (what the page holds in ``data-live``, ``id`` and
        ``data-params``), and ``values``, the text of every control by its name. To have an
        exercise judged also ``given``: the text of each field, or null to be shown the answers.

    Returns
    -------
    str
        JSON: ``picture`` and ``numbers``, the markup to show, and ``limits``, where controls end
        if that depends on the others; for ``given``, what `Exercise.reply` says; or ``message``, a
        sentence that says why there is none.
    """
    try:
        asked = json.loads(request)
        params = [parameter(spec) for spec in json.loads(asked["params"])]
        values = {p.name: _read(p, asked["values"]) for p in params}
        defaults = {p.name: p.clean(p.default) for p in params}
        figure = render(asked["target"], values, defaults=defaults, id=asked["id"])
        if isinstance(figure, Exercise) and "given" in asked:
            return json.dumps(figure.reply(asked["given"]))
    except Exception as error:  # a reader's slider must not end in a traceback
        return json.dumps({"message": sentence(error)})
    drawn: dict[str, object] = {
        "picture": figure.picture_html(),
        "numbers": figure.numbers_html(),
    }
    if figure.limits:
        drawn["limits"] = dict(figure.limits)
    return json.dumps(drawn)
