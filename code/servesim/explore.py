"""Sliders for a picture: one call that works in a notebook and on the page.

``explore("servesim.figs:batching", rate=(1, 8, .5, 4), policy=["static", "continuous"])`` calls
``servesim.figs.batching(rate=4.0, policy="static")`` and shows the figure it returns. In a kernel
the sliders are ipywidgets. On the static page they are native form controls, hidden until a
script on the page can run the same Python and says so. In a terminal there are the sentence and
the table.

The function must be importable by name and depend on its arguments alone. If it has a parameter
``ghost`` it is given the starting values (a dict) once they have been left, and None before, so
that it can keep the default run visible.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from .checks import MOST, instance, is_number, maybe, text
from .errors import InputError, brief
from .steps import Steps
from .svg import Figure, element, esc, fmt

__all__ = ["Choice", "Explorer", "Fixed", "Slider", "Steps", "explore", "render"]

Value: TypeAlias = int | float | str

# Read where no script took over: without JavaScript, and in a page opened as a file.
_IDLE = (
    "This is the picture of the starting values. To move the sliders, let the page run JavaScript "
    "and read it from a web server, or open it in Jupyter."
)
# Read where there is nothing that a page could run.
_KERNEL = "This is the picture of the starting values. The controls move it in Jupyter."


# ------------------------------------------------------------------------------- parameters


@dataclass(frozen=True, slots=True)
class Slider:
    """A number between two ends, on a grid. Whole numbers stay whole."""

    name: str
    label: str
    min: float
    max: float
    step: float
    default: float

    @property
    def whole(self) -> bool:
        """Whether the slider gives integers."""
        return all(isinstance(v, int) for v in (self.min, self.max, self.step, self.default))

    def clean(self, value: object) -> Value:
        """Return the value on the grid, equal digit for digit wherever it was chosen.

        Raises
        ------
        InputError
            If the value is no number, outside the ends, or between two steps.
        """
        if not is_number(value):
            raise InputError(f"explore: {self.name} must be a number, not {brief(value)}")
        steps = (value - self.min) / self.step if abs(value) <= MOST else math.inf
        if not (math.isfinite(steps) and -1e-6 < steps < self._count + 1e-6):
            raise InputError(
                f"explore: {self.name} must be from {fmt(self.min)} to {fmt(self.max)}, "
                f"not {brief(value)}"
            )
        if abs(steps - round(steps)) > 1e-6:
            raise InputError(
                f"explore: {self.name} = {value!r} is between two steps; use {fmt(self.min)} plus "
                f"a multiple of {fmt(self.step)}"
            )
        exact = self.min + round(steps) * self.step
        return exact if self.whole else float(f"{exact:.12g}")

    def snap(self, value: float) -> Value:
        """Return the place on the grid nearest to `value`, which may have been typed."""
        steps = min(max(round((value - self.min) / self.step), 0), round(self._count))
        return self.clean(self.min + steps * self.step)

    @property
    def _count(self) -> float:
        return (self.max - self.min) / self.step

    def check(self) -> None:
        """Raise InputError if the slider cannot work."""
        numbers = (self.min, self.max, self.step, self.default)
        if not all(is_number(v) and abs(v) <= MOST for v in numbers):
            raise InputError(f"explore: {self.name} = {brief(numbers)} must be four finite numbers")
        if self.step <= 0:
            raise InputError(
                f"explore: the step of {self.name} must be above zero, not {self.step!r}"
            )
        if self.min >= self.max:
            raise InputError(
                f"explore: {self.name} must run from low to high, not {self.min!r} to {self.max!r}"
            )
        if self._count > MOST:
            raise InputError(
                f"explore: steps of {fmt(self.step)} are too fine for {self.name}; make them larger"
            )
        if abs(self._count - round(self._count)) > 1e-6:
            raise InputError(
                f"explore: steps of {fmt(self.step)} from {fmt(self.min)} never reach the max of "
                f"{self.name}, {fmt(self.max)}; choose a max on the grid"
            )
        try:
            self.clean(self.default)
        except InputError as error:
            raise InputError(f"{error} (it is the default)") from None

    def spec(self) -> dict[str, object]:
        """Return what a script on the page has to know."""
        return {
            "name": self.name,
            "kind": "number",
            "min": self.min,
            "max": self.max,
            "step": self.step,
            "default": self.clean(self.default),
            "whole": self.whole,
        }

    def control(self, id: str, value: Value, last: int | None = None) -> str:
        """Return the native control."""
        number = _js(value)
        return (
            element("label", esc(self.label), for_=id)
            + element("output", number, for_=id)
            + element(
                "input",
                id=id,
                type="range",
                name=self.name,
                min=_js(self.min),
                max=_js(self.max),
                step=_js(self.step),
                value=number,
            )
        )

    def widget(self, lib: Any, value: Value, last: int | None = None) -> Any:
        """Return the ipywidget."""
        make = lib.IntSlider if self.whole else lib.FloatSlider
        decimals = max(len(_js(v).partition(".")[2]) for v in (self.min, self.step))
        extra = {} if self.whole else {"readout_format": f".{decimals}f"}
        return make(
            value=value,
            min=self.min,
            max=self.max,
            step=self.step,
            description=self.label,
            style={"description_width": "initial"},
            layout={"width": "32em", "max_width": "100%"},
            **extra,
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values."""

    name: str
    label: str
    options: tuple[Value, ...]
    default: Value

    def clean(self, value: object) -> Value:
        """Return the option that `value` is, or raise InputError."""
        for option in self.options:
            if option == value and type(value) is not bool:
                return option
        raise InputError(
            f"explore: {self.name} must be one of {', '.join(map(str, self.options))}, "
            f"not {brief(value)}"
        )

    def snap(self, value: Value) -> Value:
        """Return the option that `value` is."""
        return self.clean(value)

    def check(self) -> None:
        """Raise InputError if the choice cannot work."""
        if not self.options:
            raise InputError(f"explore: {self.name} has no options; list one or more")
        if not all(is_number(o) or isinstance(o, str) for o in self.options):
            raise InputError(f"explore: the options of {self.name} must be strings or numbers")
        if len(set(map(str, self.options))) < len(self.options):
            raise InputError(f"explore: {self.name} lists an option twice; leave one out")
        self.clean(self.default)

    def spec(self) -> dict[str, object]:
        """Return what a script on the page has to know."""
        options = list(self.options)
        return {"name": self.name, "kind": "choice", "options": options, "default": self.default}

    def control(self, id: str, value: Value, last: int | None = None) -> str:
        """Return the native control."""
        options = (
            element("option", esc(str(o)), selected="selected" if o == value else None)
            for o in self.options
        )
        return element("label", esc(self.label), for_=id) + element(
            "select", *options, id=id, name=self.name
        )

    def widget(self, lib: Any, value: Value, last: int | None = None) -> Any:
        """Return the ipywidget."""
        return lib.Dropdown(
            options=[(str(o), o) for o in self.options],
            value=value,
            description=self.label,
            style={"description_width": "initial"},
            layout={"max_width": "100%"},
        )


@dataclass(frozen=True, slots=True)
class Fixed:
    """An argument that the reader cannot change: it has no control."""

    name: str
    default: Value

    def clean(self, value: object) -> Value:
        """Return the one value there is."""
        return self.default

    def spec(self) -> dict[str, object]:
        """Return what a script on the page has to hand back."""
        return {"name": self.name, "kind": "fixed", "default": self.default}


Parameter: TypeAlias = Slider | Choice | Steps


def _js(value: Value) -> str:
    """Write a value as JavaScript does: 4, not 4.0."""
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _parameter(name: str, spec: object, label: str) -> Parameter:
    found: Parameter
    if isinstance(spec, list):
        found = Choice(name, label, tuple(spec), spec[0] if spec else "")
    elif isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], list):
        found = Choice(name, label, tuple(spec[0]), spec[1])
    elif isinstance(spec, tuple) and len(spec) == 4:
        found = Slider(name, label, *spec)
    elif isinstance(spec, Steps):
        found = replace(spec, name=name, label=label)
    else:
        raise InputError(
            f"explore: {name} = {brief(spec)} is no parameter; write (min, max, step, default), "
            f"[choices], ([choices], default) or Steps()"
        )
    found.check()
    return found


# ----------------------------------------------------------------------------- the function


Target: TypeAlias = str | Callable[..., Figure | str]


def _function(target: Target) -> Callable[..., Figure | str]:
    if not isinstance(target, str):
        if not callable(target):
            raise InputError(
                f"explore: target must be 'module:function' or a function, not {brief(target)}"
            )
        return target
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise InputError(f"explore: {target!r} names no function; write 'module:function'")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        # A module that is there but lacks one of its own imports keeps its traceback.
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise InputError(
            f"explore: there is no module {module_name!r} for {target!r}; write 'module:function' "
            f"with a module that can be imported"
        ) from None
    function = getattr(module, name, None)
    if not callable(function):
        near = difflib.get_close_matches(name, dir(module), n=1)
        hint = f"did you mean {near[0]!r}?" if near else "check its spelling"
        raise InputError(f"explore: module {module_name!r} has no function {name!r}; {hint}")
    return function  # type: ignore[no-any-return]


def _takes(function: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except ValueError:  # some of Python's own
        raise InputError(f"explore: {brief(function)} does not tell its parameters") from None


def _takes_ghost(function: Callable[..., object]) -> bool:
    return "ghost" in _takes(function)


def _check_names(target: Target, function: Callable[..., object], names: Iterable[str]) -> None:
    given = set(names)
    takes = _takes(function)
    keywords = {
        n: p for n, p in takes.items() if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    }
    open_ended = any(p.kind is p.VAR_KEYWORD for p in takes.values())
    for name in sorted(given - set(keywords)):
        if not open_ended:
            raise InputError(
                f"explore: {target!r} has no parameter {name!r}; "
                f"it takes {', '.join(n for n in keywords if n != 'ghost') or 'none'}"
            )
    for name, p in keywords.items():
        if p.default is p.empty and name not in given and name != "ghost":
            raise InputError(
                f"explore: {target!r} needs a value for {name!r}; add {name}=(min, max, step, "
                f"default) or {name}=[choices]"
            )


def render(
    target: Target,
    values: Mapping[str, Value],
    *,
    defaults: Mapping[str, Value] | None = None,
    id: str | None = None,
) -> Figure:
    """Call a figure's function: in a kernel, in a test, and in the page.

    Parameters
    ----------
    target : str or callable
        ``"module:function"``, or the function itself.
    values : mapping
        The function's keyword arguments.
    defaults : mapping, optional
        The starting values, for a function that draws them as a ghost.
    id : str, optional
        Id of the figure on its page; made from the target if not given.

    Returns
    -------
    Figure
        What the function returned; a plain string is taken for the SVG.
    """
    function = _function(target)
    instance(Mapping, values=values)
    maybe(instance, Mapping, defaults=defaults)
    maybe(text, id=id)
    _check_names(target, function, values)
    if defaults is not None and defaults.keys() != values.keys():
        raise InputError(f"explore: defaults must have the names of values: {', '.join(values)}")
    arguments: dict[str, object] = dict(values)
    if _takes_ghost(function):
        moved = defaults is not None and dict(defaults) != dict(values)
        arguments["ghost"] = dict(defaults) if defaults is not None and moved else None
    result = function(**arguments)
    figure = Figure(result) if isinstance(result, str) else result
    if not isinstance(figure, Figure):
        raise InputError(
            f"explore: {target!r} returned {type(result).__name__}; "
            f"return an svg.Figure or a string"
        )
    return figure.with_id(figure_id(target) if id is None else id)


def figure_id(target: Target) -> str:
    """Return the default id of a target's figure: ``servesim-figs-batching``."""
    if not isinstance(target, str):
        target = getattr(target, "__name__", type(target).__name__)
    return re.sub(r"[^A-Za-z0-9_]+", "-", target).strip("-")


# ----------------------------------------------------------------------------- the explorer


class Explorer:
    """A figure with sliders; what `explore` returns. Display it as a cell's last value."""

    def __init__(
        self,
        target: Target,
        params: Mapping[str, object],
        *,
        fixed: Mapping[str, Value] | None = None,
        caption: str = "",
        labels: Mapping[str, str] | None = None,
        id: str | None = None,
    ) -> None:
        text(caption=caption)
        maybe(text, id=id)
        maybe(instance, Mapping, fixed=fixed, labels=labels)
        labels, fixed = labels or {}, fixed or {}
        text(**{f"labels[{name!r}]": label for name, label in labels.items()})
        self.target, self.caption = target, caption
        self.id = figure_id(target) if id is None else id
        if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", self.id):
            raise InputError(
                f"explore: {self.id!r} cannot be an id; use letters, digits, - and _, "
                f"a letter first"
            )
        self.fixed = {name: Fixed(name, value) for name, value in fixed.items()}
        _check_names(target, _function(target), [*params, *self.fixed])
        for name in sorted(set(labels) - set(params)):
            raise InputError(
                f"explore: there is a label for {name!r}, which is no parameter here; "
                f"the parameters are {', '.join(params) or 'none'}"
            )
        self.params: dict[str, Parameter] = {
            name: _parameter(name, spec, labels.get(name, name.replace("_", " ").capitalize()))
            for name, spec in params.items()
        }
        self.defaults = {name: p.clean(p.default) for name, p in self.params.items()}
        self._values = dict(self.defaults)
        # A figure that cannot draw its own defaults is a mistake of its author: fail here.
        self._last = self.figure()
        self._stay_within(self._last)
        self._message = ""
        self._view: _View | None = None

    def values(self) -> dict[str, Value]:
        """Return the values that the sliders have now."""
        return dict(self._values)

    def figure(self, **values: Value) -> Figure:
        """Return the figure for the present values, some of them replaced.

        Raises
        ------
        InputError
            If there is no such parameter or it cannot have that value.
        Exception
            Whatever the function raises.
        """
        fixed = {name: f.default for name, f in self.fixed.items()}
        chosen = fixed | self._values | self._clean(values)
        return render(self.target, chosen, defaults=fixed | self.defaults, id=self.id)

    def set(self, **values: Value) -> None:
        """Move some of the sliders and redraw, as a reader would.

        If the function fails, the last picture stays and `message` says why.

        Raises
        ------
        InputError
            If there is no such parameter or it cannot have that value.
        """
        self._values |= self._clean(values)
        if self._view is not None:
            self._view.move(self._values)
        self._redraw()

    def reset(self) -> None:
        """Move all sliders back to where they started."""
        self.set(**self.defaults)

    @property
    def message(self) -> str:
        """One sentence if the last move could not be drawn, else empty."""
        return self._message

    def _clean(self, values: Mapping[str, object]) -> dict[str, Value]:
        for name in values:
            if name not in self.params:
                raise InputError(
                    f"explore: there is no parameter {name!r}; "
                    f"the parameters are {', '.join(self.params) or 'none'}"
                )
        return {name: self.params[name].clean(value) for name, value in values.items()}

    def _redraw(self) -> None:
        try:
            self._last = self.figure()
        except Exception as error:  # a reader's slider must not end in a traceback
            self._message = sentence(error)
        else:
            self._stay_within(self._last)
            self._message = ""
        if self._view is not None:
            self._view.show(self._last, self._message)

    def _stay_within(self, figure: Figure) -> None:
        """Move controls that are beyond the end that the figure told to that end."""
        for name, last in figure.limits.items():
            value = self._values.get(name, last)
            if isinstance(value, (int, float)) and value > last:
                self._values[name] = last

    # Where it is shown

    def widget(self) -> Any:
        """Return the ipywidgets view: sliders, a reset button and the picture.

        Raises
        ------
        ImportError
            If ipywidgets is not installed.
        """
        if self._view is None:
            self._view = _View(self, importlib.import_module("ipywidgets"))
            self._view.show(self._last, self._message)
        return self._view.box

    def to_html(self) -> str:
        """Return the figure for a static page.

        The controls are hidden until a script on the page takes them over. It finds what it
        needs in ``data-live`` (the function) and ``data-params`` (JSON: the parameters in order),
        hands it to `servesim.page.answer`, replaces the contents of ``.live-picture`` and
        ``.live-numbers-slot``, and says in ``data-state`` how far it is.
        """
        live = isinstance(self.target, str)
        limits = self._last.limits
        controls = [
            element(
                "div",
                p.control(f"{self.id}-in-{name}", self._values[name], limits.get(name)),
                class_="live-control live-steps" if isinstance(p, Steps) else "live-control",
            )
            for name, p in self.params.items()
        ]
        reset = element("button", "Reset", type="reset", class_="live-reset")
        link = element("a", "Link to these values", href=f"#{self.id}", class_="live-link")
        form = element(
            "form",
            *controls,
            element("div", reset, link, class_="live-actions"),
            class_="live-controls",
            autocomplete="off",
            hidden="hidden",
        )
        arguments = [*self.params.values(), *self.fixed.values()]
        specs = json.dumps([p.spec() for p in arguments], ensure_ascii=True)
        name = self.caption or self._last.title or self._last.summary or str(self.target)
        parts = [
            self._last.picture_html(),
            form if live else "",
            element(
                "p",
                esc(self._message or (_IDLE if live else _KERNEL)),
                class_="live-status",
                role="status",
            ),
            element("p", esc(self.caption), class_="live-caption") if self.caption else "",
            element("div", self._last.numbers_html(), class_="live-numbers-slot"),
        ]
        return element(
            "div",
            "\n".join(["", *filter(None, parts), ""]),
            class_="live-fig",
            id=self.id,
            data_live=str(self.target) if live else None,
            data_state="idle" if live else None,
            data_params=specs if live else None,
            role="group",
            aria_label=name,
        )

    def to_text(self) -> str:
        """Return caption, values, summary and table as plain text."""
        values = "\n".join(f"{p.label}: {_js(self._values[n])}" for n, p in self.params.items())
        return "\n\n".join(t for t in (self.caption, values, self._last.to_text()) if t)

    def __repr__(self) -> str:
        name = self.target if isinstance(self.target, str) else figure_id(self.target)
        return f"explore({name!r})"

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, Any]:
        return mimebundle(self)


class _View:
    """The ipywidgets side of an explorer.

    Never ``interact`` and never an Output widget: executing a book would then wait, now and
    then, until its time is up. The picture is the value of an HTML widget.
    """

    def __init__(self, explorer: Explorer, lib: Any) -> None:
        self._explorer = explorer
        self._quiet = False
        self.inputs = {
            name: p.widget(lib, explorer._values[name], explorer._last.limits.get(name))
            for name, p in explorer.params.items()
        }
        self.picture, self.status, self.numbers = lib.HTML(), lib.HTML(), lib.HTML()
        # Not a <details> in the picture: each move would close it again.
        self.fold = lib.Accordion([self.numbers], titles=["Table of the numbers"])
        self.button = lib.Button(description="Reset", tooltip="Back to the starting values")
        for control in self.inputs.values():
            control.observe(self._moved, "value")
        self.button.on_click(lambda _: explorer.reset())
        parts = (self.button, self.status, self.picture, self.fold)
        rows = []
        for name, p in explorer.params.items():
            rows.append(self.inputs[name])
            if isinstance(p, Steps):
                rows.append(p.buttons(lib, self.inputs[name]))
        self.box = lib.VBox([*rows, *parts])

    def _moved(self, _: object) -> None:
        if not self._quiet:
            params = self._explorer.params
            self._explorer.set(**{n: params[n].snap(w.value) for n, w in self.inputs.items()})

    def move(self, values: Mapping[str, Value]) -> None:
        """Set the controls without drawing once for each."""
        self._quiet = True
        try:
            for name, control in self.inputs.items():
                if isinstance(self._explorer.params[name], Steps):
                    # How far the new run goes is known when it is drawn.
                    control.max = max(control.max, values[name])
                control.value = values[name]
        finally:
            self._quiet = False

    def _limit(self, limits: Mapping[str, int]) -> None:
        """Let controls end where the figure says."""
        self._quiet = True
        try:
            for name, last in limits.items():
                if name in self.inputs:
                    self.inputs[name].max = last
        finally:
            self._quiet = False

    def show(self, figure: Figure, message: str) -> None:
        """Show a figure and, if there is something to say, a sentence."""
        self._limit(figure.limits)
        body = [figure.picture_html(), figure.summary_html()]
        if self._explorer.caption:
            body.append(element("p", esc(self._explorer.caption), class_="live-caption"))
        self.picture.value = element("div", *body, class_="live-fig")
        self.numbers.value = element("div", figure.table_html(), class_="live-fig")
        self.fold.layout.display = None if figure.table is not None else "none"
        self.status.value = (
            element("p", esc(message), class_="live-status", role="status") if message else ""
        )


def sentence(error: BaseException) -> str:
    """Say in one sentence that a picture could not be drawn, and why."""
    text = " ".join(str(error).split()) or "no further message"
    if len(text) > 300:
        text = text[:299] + "…"
    return f"This could not be drawn, so the last picture stays: {type(error).__name__}: {text}"


def in_kernel() -> bool:
    """Tell whether this runs in a Jupyter kernel, so that widgets can move."""
    try:
        shell = importlib.import_module("IPython").get_ipython()
    except ImportError:
        return False
    return getattr(shell, "kernel", None) is not None


def mimebundle(shown: Any) -> dict[str, Any]:
    """Return text and HTML of an explorer or a drill; in a kernel its widget, too, if it can."""
    data: dict[str, Any] = {"text/plain": shown.to_text(), "text/html": shown.to_html()}
    if in_kernel():
        try:
            return {**shown.widget()._repr_mimebundle_(), **data}
        except ImportError:  # ipywidgets is not installed
            pass
    return data


def explore(
    target: Target,
    /,
    *,
    fixed: Mapping[str, Value] | None = None,
    caption: str = "",
    labels: Mapping[str, str] | None = None,
    id: str | None = None,
    **params: object,
) -> Explorer:
    """Show a figure with sliders.

    Parameters
    ----------
    target : str or callable
        ``"module:function"``. The function takes the parameters as keywords and returns an
        `svg.Figure` (or a plain SVG string). A function that cannot be imported by name may be
        given itself; then its controls move in a kernel, and not on the page.
    fixed : mapping of str to a number or a text, optional
        Arguments that the reader cannot change.
    caption : str
        The conclusion, in a sentence.
    labels : mapping of str to str, optional
        What stands beside each control, with its unit: ``{"rate": "Arrival rate (requests/s)"}``.
    id : str, optional
        Id on the page; needed if one page shows the same function twice.
    **params
        For a slider ``(min, max, step, default)``: whole numbers if all four are. For a choice
        ``[first, second, ...]``, starting with the first, or ``([...], default)``. For the
        steps of a run `Steps()`.

    Returns
    -------
    Explorer

    Raises
    ------
    InputError
        If the function or a parameter is unknown, or a range, default or choice cannot work.
    """
    return Explorer(target, params, fixed=fixed, caption=caption, labels=labels, id=id)
