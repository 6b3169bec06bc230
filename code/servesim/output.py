"""What leaves the program: text, files (complete or not at all), and a progress bar."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from .checks import file_name
from .errors import InputError


def check_writable(file: str | Path, named: str) -> None:
    """Refuse an impossible output file before the run, not after it.

    Parameters
    ----------
    file : str or Path
    named : str
        What the reader knows it by, such as a flag.

    Raises
    ------
    InputError
    """
    path = Path(file)
    try:
        file_name(file=path)
        special = path.exists() and not path.is_file()  # a folder, or a device such as /dev/null
        if not special:
            file_name(part=_part_of(path))  # which is longer
    except InputError:
        special = True
    if special or not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{named} {file}: cannot be written; name a file in a folder of yours")


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file completely or not at all; text as UTF-8.

    Raises
    ------
    InputError
        If the disk is full, or the folder is gone.
    """
    part = _part_of(path)
    try:
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        part.replace(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None
    finally:
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
        # What is left in the buffer must not fail once more when Python ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise InputError(f"the output cannot be written: {error.strerror}") from None


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
