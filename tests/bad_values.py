"""What anybody could give for an option by mistake, and what a clear sentence about it is like."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HUGE = 10**5000  # too long for Python to print

NASTY: dict[str, Any] = {
    "None": None,
    "True": True,
    "False": False,
    "empty": "",
    "text": "nosuch",
    "digits": "7",
    "lines": "a\nb",
    "NUL": "\0",
    "bytes": b"7",
    "0": 0,
    "1": 1,
    "-1": -1,
    "0.5": 0.5,
    "1.0": 1.0,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "1e308": 1e308,
    "1e-308": 1e-308,
    "2**64": 2**64,
    "10**5000": HUGE,
    "list": [],
    "[None]": [None],
    "[1]": [1],
    "tuple": (),
    "dict": {},
    "{'a': None}": {"a": None},
    "object": object(),
    "class": int,
    "function": len,
}
"""One of everything."""


@dataclass(frozen=True)
class Kind:
    """What an option may be; anything else has to be refused."""

    says: str
    fits: Callable[[Any], bool]

    def __or__(self, other: "Kind") -> "Kind":
        return Kind(f"{self.says} or {other.says}", lambda v: self.fits(v) or other.fits(v))


def whole(least: int = -(2**63), most: float = math.inf) -> Kind:
    return Kind(f"whole number from {least}", lambda v: type(v) is int and least <= v <= most)


def number(least: float = -math.inf, most: float = math.inf) -> Kind:
    """A finite number; to be above `least` and not at it give the next one, 5e-324 for 0."""
    return Kind(
        f"number from {least:g}",
        lambda v: type(v) in (int, float) and least <= v <= most and v < math.inf,
    )


def a(*kinds: type) -> Kind:
    names = " or ".join(kind.__name__ for kind in kinds)
    return Kind(
        names, lambda v: isinstance(v, kinds) and not (type(v) is bool and bool not in kinds)
    )


def one_of(*known: object) -> Kind:
    return Kind(
        f"one of {known}", lambda v: any(v is k or (type(v), v) == (type(k), k) for k in known)
    )


FLAG = a(bool)
TEXT = a(str)
NONE = one_of(None)
ANY = Kind("anything", lambda v: True)
NOTHING = Kind("nothing of these", lambda v: False)
EMPTY = Kind("empty", lambda v: isinstance(v, (list, tuple, dict)) and not v)
FUNCTION = Kind("function", callable)


def clear(sentence: str, *names: str) -> str:
    """Say what is not clear about a sentence; nothing if it is.

    It is one line of at most 600 signs, names one of `names`, and does not show Python's insides.
    """
    faults = {
        "more than a line": "\n" in sentence or "\r" in sentence,
        "no sentence": len(sentence.split()) < 3,
        "too long": len(sentence) > 600,
        "ends with the name of a class": re.search(r"\b[A-Z]\w+(Error|Exception)\W*$", sentence),
        "begins with the name of a class": re.match(r"\w+(Error|Exception)\b", sentence),
        "a traceback": "Traceback" in sentence or 'File "' in sentence,
        "an address": re.search(r" at 0x[0-9a-f]+", sentence),
        "Python's own words": re.search(
            r"object is not|unhashable|not supported between|has no attribute|positional argument"
            r"|unexpected keyword|NoneType|not subscriptable|could not convert|must be str\b",
            sentence,
        ),
        f"names none of {names}": names and not any(name in sentence for name in names),
    }
    return ", ".join(fault for fault, found in faults.items() if found)
