"""What leaves the program: text, files (complete or not at all), and a progress bar."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

from .checks import file_name
from .errors import InputError


def check_writable(file: str | Path, named: str, read: Iterable[str | Path | None] = ()) -> None:
    """Refuse an impossible output file before the run, not after it.

    Parameters
    ----------
    file : str or Path
    named : str
        What the reader knows it by, such as a flag.
    read : iterable of str, Path or None
        Where the input may come from: none of these files is to be written over.

    Raises
    ------
    InputError
    """
    path = Path(file)
    try:
        file_name(file=path)
        special = path.exists() and not path.is_file()  # a folder, or a device such as /dev/null
        if not special:
            part = _part_of(path)
            file_name(part=part)  # which is longer
            special = part.exists() and not part.is_file()
    except InputError:
        special = True
    if special or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{named} {file}: cannot be written; name a file in a folder of yours")
    if any(_are_one(path, other) for other in read if other is not None):
        raise InputError(f"{named} {file}: would be written over what is read; name another file")


def _are_one(path: Path, other: str | Path) -> bool:
    with suppress(OSError, ValueError):  # one of them does not exist
        return path.samefile(other)
    return False


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or not at all; text as UTF-8.

    What UTF-8 has no sign for, as a file's name may hold, is spelled as an escape.

    Raises
    ------
    InputError
        If the disk is full, or the folder is gone.
    """
    part = _part_of(path)
    try:
        if isinstance(content, str):
            content = content.encode("utf-8", "backslashreplace")
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    """Return where a file is written before it takes its place."""
    return path.with_name(path.name + ".part")


def whole_lines(path: Path) -> list[bytes]:
    """Return the lines of a file that grows line by line; none if there is no file.

    If the program died while it wrote one, that last, cut line is removed from the file.
    """
    if not path.exists():
        return []
    found = path.read_bytes()
    whole = found[: found.rfind(b"\n") + 1]
    if whole != found:
        os.truncate(path, len(whole))
    return whole.splitlines()


def begin() -> None:
    """See that there is what each command needs: a current folder, and the standard streams.

    Where a stream was closed (``>&-``) a file opened later would take its place.

    Raises
    ------
    InputError
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115
    try:
        os.getcwd()
    except OSError as error:
        raise InputError(
            f"the current folder cannot be used ({error.strerror}); change to one that is there"
        ) from None


def say(text: str, end: str = "\n") -> None:
    """Print; what the terminal has no sign for is spelled as an escape.

    A reader that has seen enough, such as ``head``, is no error.

    Raises
    ------
    InputError
        If the output cannot be written, as on a full disk.
    """
    code = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(code, "backslashreplace").decode(code), end=end, flush=True)
    except OSError as error:
        _silence(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"the output cannot be written: {error.strerror}") from None


def complain(sentence: str) -> None:
    """Print on stderr. If even that cannot be written, the exit status has to do."""
    try:
        print(sentence, file=sys.stderr, flush=True)
    except OSError:
        _silence(sys.stderr)


def _silence(stream: TextIO) -> None:
    """Let a stream lead nowhere: what is in its buffer must not fail again when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Bar:
    """A progress bar on stderr, only on a terminal; without tqdm there is none.

    Parameters
    ----------
    total : int
        Things to do.
    name, unit : str
        What is written before the bar, and one thing's name.
    shown : bool
        False for work that is too short to watch.
    done : int
        Things that were done before.
    """

    def __init__(
        self, total: int, name: str, unit: str, *, shown: bool = True, done: int = 0
    ) -> None:
        self._bar: Any = None
        if shown and sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:  # the simulator itself needs nothing but the standard library
                return
            self._bar = tqdm(
                total=total, initial=done, desc=name, unit=unit, file=sys.stderr, leave=False
            )

    @property
    def shown(self) -> bool:
        """Whether there is a bar."""
        return self._bar is not None

    def update(self, done: object = None) -> None:
        """Count one more thing done."""
        if self.shown:
            self._bar.update()

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.shown:
            self._bar.close()
