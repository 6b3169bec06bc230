"""What an option may be. Each check raises one sentence: the option, what it must be, what it is.

Options are given by keyword, so that a sentence can name them: ``whole_from(1, n=n)``.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Callable, Collection, Iterable
from dataclasses import fields
from functools import partial
from os import PathLike
from typing import Any, TypeGuard, TypeVar

from .errors import InputError, brief

T = TypeVar("T")

MOST = 10**15
"""Largest number accepted: what is above it is a mistake, and no clock or index would hold it."""


def whole_from(least: int, **options: int) -> None:
    """Check that options are whole numbers from `least` up.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if type(value) is not int or value < least:
            raise InputError(f"{name} must be a whole number, {least} or more, not {brief(value)}")
        if value > MOST:
            raise InputError(f"{name} must be a whole number up to {MOST}, not {brief(value)}")


def at_least(least: int, **options: int | None) -> None:
    """Check options as `whole_from` does; None passes as 'not set'.

    Raises
    ------
    InputError
    """
    whole_from(least, **{name: value for name, value in options.items() if value is not None})


def number_from(least: float, most: float = MOST, **options: float) -> None:
    """Check that options are numbers from `least` to `most`.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if not is_number(value) or not least <= value < math.inf:
            raise InputError(f"{name} must be a number, {least:g} or more, not {brief(value)}")
        if value > most:
            raise InputError(f"{name} must be a number up to {most:g}, not {brief(value)}")


def is_number(value: object) -> TypeGuard[float]:
    """Tell whether a value is a number: True and False are none here, although Python has it so."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def seed_number(**options: int) -> None:
    """Check that options are whole numbers of at most 64 bits.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if type(value) is not int or not -(2**63) <= value < 2**63:
            raise InputError(
                f"{name} must be a whole number of at most 64 bits, not {brief(value)}"
            )


def share(**options: float) -> None:
    """Check that options are numbers from 0 to below 1.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if not is_number(value) or not 0 <= value < 1:
            raise InputError(f"{name} must be a share from 0 to below 1, not {brief(value)}")


def one_of(known: Collection[str], **options: str) -> None:
    """Check that options have one of the known values.

    Raises
    ------
    InputError
        Naming the option, its value and the known ones.
    """
    for name, value in options.items():
        if not isinstance(value, str) or value not in known:
            raise InputError(f"{name} must be {' or '.join(known)}, not {brief(value)}")


def flag(**options: bool) -> None:
    """Check that options are True or False: the text ``"no"`` would count as True.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if type(value) is not bool:
            raise InputError(f"{name} must be True or False, not {brief(value)}")


def by_annotation(record: Any) -> None:
    """Check the fields of a dataclass by what their annotations say.

    That is bool, str, int and float (0 or more), tuple of str, function; each also with
    ``| None``. Other fields are not looked at.

    Raises
    ------
    InputError
        Naming the field and its value.
    """
    for field in fields(record):
        annotation, value = str(field.type), getattr(record, field.name)
        kind = annotation.removesuffix(" | None")
        if value is None and kind != annotation:
            continue
        if kind == "tuple[str, ...]":
            list_of(str, field.name, value)
        elif check := _CHECKS.get(kind.partition("[")[0]):
            check(**{field.name: value})


def instance(kind: type, **options: object) -> None:
    """Check that options are objects of a class.

    Raises
    ------
    InputError
        Naming the option, the class and the value.
    """
    for name, value in options.items():
        if not isinstance(value, kind):
            raise InputError(f"{name} must be of class {_told(kind)}, not {brief(value)}")


def text(**options: object) -> None:
    """Check that options are texts.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if not isinstance(value, str):
            raise InputError(f"{name} must be text, not {brief(value)}")


def file_name(**options: object) -> None:
    """Check that options can name a file.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if not isinstance(value, str | PathLike) or not _possible(value):
            raise InputError(f"{name} must name a file, and {brief(value)} cannot")


def _possible(path: str | PathLike[str]) -> bool:
    """Tell whether a file could be called so."""
    try:
        os.lstat(path)
    except OSError as error:
        return error.errno != errno.ENAMETOOLONG
    except ValueError:  # a NUL, or what no file system can write
        return False
    return True


def function(**options: object) -> None:
    """Check that options can be called.

    Raises
    ------
    InputError
        Naming the option and its value.
    """
    for name, value in options.items():
        if not callable(value):
            raise InputError(f"{name} must be a function, not {brief(value)}")


def method(called: str, **options: object) -> None:
    """Check that options are objects with a method, and not the class of such.

    Raises
    ------
    InputError
        Naming the option, the method and the value.
    """
    for name, value in options.items():
        if isinstance(value, type) or not callable(getattr(value, called, None)):
            raise InputError(f"{name} must be an object with a method {called}, not {brief(value)}")


def list_of(kind: type[T] | tuple[type[T], ...], name: str, values: Iterable[T]) -> list[T]:
    """Return what an option holds as a list, if all of it are objects of a class.

    Raises
    ------
    InputError
        Naming the option, the class, and what is not of it.
    """
    listed = list(iterable(name, values, f"{_told(kind)} objects"))
    for value in listed:
        if not isinstance(value, kind):
            raise InputError(f"{name} must hold {_told(kind)} objects only, not {brief(value)}")
    return listed


def iterable(name: str, values: Iterable[T], what: str) -> Iterable[T]:
    """Return what an option holds, if one can go through it and it is no text.

    Raises
    ------
    InputError
        Naming the option, what it must hold, and its value.
    """
    if not isinstance(values, Iterable) or isinstance(values, str | bytes):
        raise InputError(f"{name} must be a list of {what}, not {brief(values)}")
    return values


def maybe(check: Callable[..., None], *args: Any, **options: object) -> None:
    """Make a check of those options that are not None.

    Raises
    ------
    InputError
    """
    check(*args, **{name: value for name, value in options.items() if value is not None})


def _told(kind: Any) -> str:
    if isinstance(kind, tuple):
        return " or ".join(map(_told, kind))
    return f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")


_CHECKS: dict[str, Callable[..., None]] = {
    "bool": flag,
    "str": text,
    "int": partial(whole_from, 0),
    "float": partial(number_from, 0),
    "Callable": function,
}
