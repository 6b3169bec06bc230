"""What comes into the program from files, and how much of it: no file is read without an end."""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, TextIO

from .errors import InputError

MOST_LINE = 1_000_000
"""Characters of a line; what has longer ones (`/dev/zero`, say) is no text."""

MOST_BYTES = 2**28
"""Bytes of a file that is read as a whole, after it is unpacked."""


def opened(path: Path) -> IO[bytes]:
    """Open a file for reading, and unpack it if its name ends in ``.gz``."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def text_of(path: Path) -> TextIO:
    """Open a file as text: UTF-8, with or without a mark at its begin, line ends as they are."""
    return io.TextIOWrapper(opened(path), encoding="utf-8-sig", newline="")


def lines(file: TextIO, name: object) -> Iterator[str]:
    """Yield the lines of a text.

    Raises
    ------
    InputError
        If one is longer than `MOST_LINE`.
    """
    for number, line in enumerate(iter(partial(file.readline, MOST_LINE + 1), ""), 1):
        if len(line) > MOST_LINE:
            raise InputError(f"{name}, line {number}: has more than {MOST_LINE:,} characters")
        yield line


def whole(path: Path, name: object) -> bytes:
    """Return what is in a file, unpacked.

    Raises
    ------
    InputError
        If it is more than `MOST_BYTES`.
    """
    with opened(path) as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise InputError(f"{name}: has more than {MOST_BYTES:,} bytes")
    return data
