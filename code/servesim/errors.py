"""What can go wrong, and who has to mend it."""

from __future__ import annotations

import os
import re
import traceback
from types import TracebackType


def brief(value: object, most: int = 100) -> str:
    """Return a value as it is shown in a sentence: one line, cut where it gets too long."""
    try:
        text = repr(value)
    except Exception:  # whole numbers of thousands of digits, and whatever a student's class does
        text = f"a {type(value).__name__} that cannot be shown"
    text = re.sub(" at 0x[0-9A-Fa-f]+", "", " ".join(text.split()))  # says nothing to anybody
    return text if len(text) <= most else f"{text[: most - 3]}..."


class InputError(ValueError):
    """Bad input: one sentence that names the thing and the mend.

    What it quotes, such as a file's name, may hold line ends and worse, which are spelled as
    escapes, and be of any length: the middle of a long sentence is left out.
    """

    def __init__(self, sentence: str) -> None:
        shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in sentence)
        super().__init__(shown if len(shown) <= 600 else f"{shown[:400]} ... {shown[-150:]}")


class PlanError(RuntimeError):
    """A policy returned a plan that breaks a rule of the engine.

    Attributes
    ----------
    step : int
        Index of the step that was being planned.
    request : int or None
        Id of the request concerned, if the rule concerns one, and it can be printed.
    rule : str
        Short name of the rule, for example ``"blocks"``; see `servesim.audit.RULES`.
    detail : str
        What was asked, what was possible.
    """

    def __init__(self, step: int, request: int | None, rule: str, detail: str) -> None:
        if request is not None and request.bit_length() > 1000:  # Python prints no longer ones
            request = None
        self.step, self.request, self.rule, self.detail = step, request, rule, detail
        about = "" if request is None else f", request {request}"
        super().__init__(f"step {step}{about}, rule '{rule}': {detail}")

    def __reduce__(self) -> tuple[type[PlanError], tuple[int, int | None, str, str]]:
        return (PlanError, (self.step, self.request, self.rule, self.detail))


class PolicyError(RuntimeError):
    """A policy raised an exception of its own: its line, the step and the request.

    `step` is None if it failed before the run, when it was loaded or built.

    The original exception is the ``__cause__``; its traceback starts in the policy's own
    code, the engine's frames are left out.
    """

    def __init__(
        self,
        policy: str,
        step: int | None,
        request: int | None,
        cause: BaseException,
        method: str = "plan",
    ) -> None:
        self.policy, self.step, self.request, self.method = policy, step, request, method
        self.__cause__ = cause
        _cut_behind_student(cause)
        about = "" if request is None else f", request {request}"
        when = " failed to load" if step is None else f".{method} failed in step {step}"
        super().__init__(f"{policy}{when}{about}{students_place(cause)}: {said(cause)}")

    def __reduce__(self) -> tuple[type[PolicyError], tuple[object, ...]]:
        assert self.__cause__ is not None
        return PolicyError, (self.policy, self.step, self.request, self.__cause__, self.method)

    def lines(self) -> list[str]:
        """Return the student's traceback and the sentence, as lines."""
        cause = self.__cause__
        assert cause is not None
        # What stands between the engine and the student's code says nothing to a student.
        theirs = next((tb for tb in _frames(cause) if not _ours(tb)), cause.__traceback__)
        text = "".join(traceback.format_exception(type(cause), cause, theirs, chain=False))
        return [*text.rstrip().splitlines(), "", str(self)]

    def _render_traceback_(self) -> list[str]:
        """Show only the student's frames in Jupyter (a hook of IPython's)."""
        return self.lines()


_LIBRARY = (os.path.dirname(os.path.abspath(os.__file__)) + os.sep, "<frozen ")


def _frames(error: BaseException) -> list[TracebackType]:
    frames, tb = [], error.__traceback__
    while tb is not None:
        frames.append(tb)
        tb = tb.tb_next
    return frames


def _file(tb: TracebackType) -> str:
    return tb.tb_frame.f_code.co_filename


def _ours(tb: TracebackType) -> bool:
    return f"{tb.tb_frame.f_globals.get('__name__')}.".startswith(f"{__package__}.")


def _cut_behind_student(error: BaseException) -> None:
    """Drop the frames of this package that a student's last frame has called."""
    others = [tb for tb in _frames(error) if not _ours(tb)]
    if others:
        others[-1].tb_next = None


def students_place(error: BaseException) -> str:
    """Return " at FILE, line N": the innermost line that is neither ours nor a library's."""
    frames = _frames(error)
    theirs = [tb for tb in frames if not _ours(tb) and not _file(tb).startswith(_LIBRARY)]
    theirs = [tb for tb in theirs if "site-packages" not in _file(tb)]
    last = (theirs or frames)[-1:]
    return "".join(f" at {_file(tb)}, line {tb.tb_lineno}" for tb in last)


def said(error: BaseException) -> str:
    """Return an exception's type and text; a text that cannot be made is left out."""
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def without_first_frame(
    error: BaseException,
) -> tuple[BaseException, TracebackType | None]:
    """Drop the caller's own frame from an exception that it has just caught."""
    tb = error.__traceback__
    inner = tb.tb_next if tb is not None else None
    return error.with_traceback(inner), inner


def without_frames_above(error: BaseException, file: str) -> BaseException:
    """Drop the frames by which an exception came out of `file`; all of them if none is of it."""
    tb = error.__traceback__
    while tb is not None and tb.tb_frame.f_code.co_filename != os.path.abspath(file):
        tb = tb.tb_next
    return error.with_traceback(tb)
