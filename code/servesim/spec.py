"""Things named in one line of text: ``NAME[:key=value,...]``.

The command line and parameter sweeps name policies, workloads, price lists and SLOs this way.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from . import checks, cost, reading, workload
from .engine import SupportsPlan
from .errors import InputError, PolicyError, brief, without_frames_above
from .metrics import SLO, SLO_PRESETS
from .policies import BUILT_IN
from .request import Request

T = TypeVar("T")


def split(text: str) -> tuple[str, dict[str, Any]]:
    """Split ``NAME:key=value,...`` into the name and its options.

    Raises
    ------
    InputError
        If an option is not of the form ``key=value``, or is given twice.
    """
    checks.text(text=text)
    name, _, rest = text.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InputError(f"{text!r}: an option is written key=value, not {part!r}")
        if key in options:
            raise InputError(f"{text!r}: option {key!r} is given twice")
        options[key] = value_of(value.strip())
    return name.strip(), options


def expand(text: str) -> list[str]:
    """Spell out choices in braces: ``a={1,2},b={3,4}`` is four texts, the last one first to vary.

    Raises
    ------
    InputError
        If a brace is left over.
    """
    checks.text(text=text)
    parts = re.split(r"\{([^{}]*)\}", text)  # every second one stood in braces
    if any("{" in part or "}" in part for part in parts):
        raise InputError(f"{text!r}: braces hold choices, as in rate={{1,2,4}}, and nothing else")
    choices = [part.split(",") if i % 2 else [part] for i, part in enumerate(parts)]
    return ["".join(chosen) for chosen in itertools.product(*choices)]


def file_in(text: str) -> Path | None:
    """Return the file that a policy or a workload names, if it names one."""
    checks.text(name=text)
    if ".py:" in text:
        return Path(text.partition(".py:")[0] + ".py")
    return Path(text) if text.removesuffix(".gz").endswith((".csv", ".jsonl")) else None


def value_of(text: str) -> Any:
    """Read a number, true, false or none; anything else stays text."""
    checks.text(value=text)
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text


def build(what: Callable[..., T], options: Mapping[str, Any], named: str) -> T:
    """Call `what` with options, or say which option it does not know.

    Raises
    ------
    InputError
        Naming the option and the known ones.
    """
    taken = inspect.signature(what).parameters
    known = {k: p for k, p in taken.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in taken.values())
    for key, value in options.items():
        if takes_any and key not in known:
            continue
        if key not in known or key.startswith("_"):
            choices = ", ".join(k for k in known if not k.startswith("_")) or "none"
            raise InputError(f"{named}: unknown option {key!r}; known are {choices}")
        if known[key].annotation in (bool, "bool") and type(value) is not bool:
            raise InputError(f"{named}: option {key!r} must be true or false, not {value!r}")
    needed = [k for k, p in known.items() if p.default is p.empty and k not in options]
    if needed:
        raise InputError(f"{named}: option {needed[0]!r} is missing")
    return what(**options)


def choose(kind: str, name: str, known: Mapping[str, T]) -> T:
    """Look a name up, or say which names there are.

    Raises
    ------
    InputError
    """
    if not isinstance(name, str) or name not in known:
        raise InputError(f"unknown {kind} {brief(name)}; known are {', '.join(known)}")
    return known[name]


def policy(text: str) -> SupportsPlan:
    """Build a policy from ``NAME[:options]`` or ``FILE.py:Class[:options]``."""
    checks.text(policy=text)
    if ".py:" in text:
        file, _, rest = text.partition(".py:")
        name, options = split(rest)
        made = _class_in(Path(file + ".py"), name)
        try:
            return build(made, options, f"policy {text!r}")
        except InputError:
            raise
        except (Exception, SystemExit) as error:
            cause = without_frames_above(error, file + ".py")
            raise PolicyError(name, None, None, cause) from error
    if text.endswith(".py"):
        raise InputError(f"policy {text!r}: name the class too, as in {text}:MyPolicy")
    name, options = split(text)
    return build(choose("policy", name, BUILT_IN), options, f"policy {name!r}")


def _class_in(path: Path, name: str) -> Callable[..., SupportsPlan]:
    checks.file_name(policy=path)
    try:
        text = reading.whole(path, f"policy file {path}")
    except FileNotFoundError:
        raise InputError(f"policy file {path} does not exist") from None
    except OSError as error:
        raise InputError(f"policy file {path}: {error.strerror or error}") from None
    module = ModuleType(f"_policy_{path.stem}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look here
    try:
        # Compiled here: Python's own cache takes two versions of one second for the same.
        exec(compile(text, path, "exec", dont_inherit=True), vars(module))
    except SyntaxError as error:
        line = "" if error.lineno is None else f", line {error.lineno}"
        raise InputError(f"policy file {path}{line}: {error.msg}") from None
    except (Exception, SystemExit) as error:
        raise PolicyError(name, None, None, without_frames_above(error, str(path))) from error
    found = vars(module).get(name)
    if not isinstance(found, type):
        classes = [
            k
            for k, v in vars(module).items()
            if isinstance(v, type) and v.__module__ == module.__name__
        ]
        raise InputError(
            f"policy file {path} has no class {name!r}; it has {', '.join(classes) or 'none'}"
        )
    return found


GENERATORS: dict[str, Callable[..., list[Request]]] = {
    "toy": workload.toy,
    "slots": workload.slots,
    "poisson": workload.poisson,
    "gamma": workload.gamma,
}


STREAM_FROM = 100_000
"""Requests from which on a generated workload is made while it is read."""


def requests(text: str) -> list[Request] | workload.Stream:
    """Build a workload from ``NAME[:options]`` or a file's name."""
    checks.text(workload=text)
    if text.removesuffix(".gz").endswith((".csv", ".jsonl")):
        return workload.load(text)
    name, options = split(text)
    make = choose("workload", name, GENERATORS)
    n = options.get("n")
    if isinstance(n, int) and n >= STREAM_FROM:
        stream = functools.wraps(make)(partial(workload.Stream, name))  # takes the same options
        return build(stream, options, f"workload {name!r}")
    return build(make, options, f"workload {name!r}")


def prices(text: str) -> cost.Cost:
    """Build a price list from a preset's name, ``affine:...`` or ``roofline:...``."""
    checks.text(cost=text)
    name, options = split(text)
    models: dict[str, Callable[..., cost.Cost]] = {
        "affine": cost.Affine,
        "roofline": cost.Roofline,
    }
    if name in models:
        return build(models[name], options, f"cost {name!r}")
    preset = choose("cost", name, {**cost.PRESETS, **models})
    if options:
        raise InputError(f"cost {name!r} takes no options; use affine:key=value,... instead")
    return preset  # type: ignore[return-value]


def slo(text: str) -> SLO:
    """Build an SLO from a preset's name or ``ttft_ms=..,tpot_ms=..``."""
    checks.text(slo=text)
    if "=" in text:
        return build(SLO, split(f"slo:{text}")[1], "slo")
    return choose("SLO preset", text, SLO_PRESETS)
