"""What runs in the child process: a student's policy, asked for plans in lines of JSON.

The child is given the sources of a few modules, the student's file, and views. It holds nothing
else that would be worth reading: no workload, no output length, no engine, no rule. Whatever it
answers is a plan like any other, which the parent checks.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import sys
import traceback
from typing import Any, NoReturn

from ..audit import check_view, given
from ..errors import PlanError, brief, said
from ..plan import Plan, View
from ..request import Progress
from .load import NoClassError, asks_for_lengths, load

READABLE = tuple(dict.fromkeys((sys.base_prefix, sys.prefix, os.path.dirname(os.__file__))))
"""Where Python itself lies: importing reads there."""

PROCESSES = ("subprocess.", "os.system", "os.fork", "os.exec", "os.spawn", "os.posix_spawn", "pty.")
FILES = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate")
MEMORY = ("gc.", "ctypes.", "sys.addaudithook")
SIGNALS = ("os.kill", "signal.", "resource.")
"""Audit events (Python's, PEP 578) of what a policy has no business with, by their beginnings."""


class Watchman:
    """Notes the first thing that a policy has no business with, and stops it.

    This gives a reason to the honest and the careless. It is no wall: walls are the limits of the
    process and what the system puts around it.
    """

    def __init__(self) -> None:
        self.offence = ""
        self.awake = False

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        """See an audit event."""
        if not self.awake:
            return
        if event == "open":
            path, mode, _ = args
            writes = isinstance(mode, str) and set(mode) & set("wax+")
            inside = isinstance(path, str) and path.startswith(READABLE)
            if isinstance(path, int) or (inside and not writes):
                return
            self.stop(f"opens the file {brief(path)}")
        elif event.startswith("socket."):
            self.stop("uses the network")
        elif event.startswith(PROCESSES):
            self.stop("starts another process")
        elif event.startswith(FILES):
            self.stop("changes files")
        elif event.startswith(MEMORY):
            self.stop(f"searches the memory of its process ({event})")
        elif event.startswith(SIGNALS):
            self.stop(f"interferes with its process ({event})")

    def stop(self, what: str) -> NoReturn:
        """Note an offence and raise."""
        self.offence = self.offence or f"the policy {what}"
        raise PermissionError(f"a policy that {what} scores 0")


def limit(limits: dict[str, int]) -> None:
    """Bound what this process can take, for good."""
    try:
        import resource
    except ImportError:
        return
    for name, value in limits.items():
        kind = getattr(resource, name, None)
        if kind is not None:
            try:
                resource.setrlimit(kind, (value, value))
            except (ValueError, OSError):  # a system that cannot, or a lower limit already
                continue


class Servant:
    """Answers requests: ``case`` builds a fresh policy, ``view`` asks it for a plan."""

    def __init__(self, hello: dict[str, Any], watchman: Watchman) -> None:
        self.text, self.file, self.name = hello["text"], hello["file"], hello["class"]
        self.watchman = watchman
        self.policy: Any = None

    def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Return the answer to one request; never raises."""
        self.watchman.awake = True
        try:
            told = self._build(asked["case"]) if "case" in asked else self._plan(asked["view"])
        except MemoryError:
            self.policy = None
            told = {"refused": "the policy took more memory than it may"}
        except NoClassError as error:
            told = {"refused": str(error)}
        except PlanError as error:
            told = {"broken": [error.step, error.request, error.rule, error.detail]}
        except BaseException as error:
            told = {"raised": self._raised(error), "loaded": self.policy is not None}
        finally:
            self.watchman.awake = False
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(Exception):  # it may have been closed or replaced
                    stream.flush()
        if self.watchman.offence:
            return {"refused": self.watchman.offence}
        return told

    def _build(self, options: dict[str, Any]) -> dict[str, Any]:
        random.seed(0)
        self.policy = None
        kind = load(self.text, self.file, self.name)
        self.policy = False  # loaded, not built
        self.policy = kind(**options)
        if asks := asks_for_lengths(self.policy):
            return {"refused": asks}
        return {"built": True}

    def _plan(self, data: dict[str, Any]) -> dict[str, Any]:
        view = View.from_json(data)
        before = given(view)
        plan = self.policy.plan(view)
        check_view(view, before)
        if type(plan) is not Plan:
            return {"other": brief(plan)}
        told = {name: getattr(plan, name) for name in Plan.__dataclass_fields__}
        reasons = plan.reasons
        if isinstance(reasons, dict):  # keys are numbers; JSON would turn them into text
            told["reasons"] = [[rid, why] for rid, why in reasons.items()]
        return {"plan": told}

    def _raised(self, error: BaseException) -> dict[str, Any]:
        tb, rid = error.__traceback__, None
        while tb is not None and tb.tb_frame.f_code.co_filename != self.file:
            tb = tb.tb_next
        error, place = error.with_traceback(tb), ""
        while tb is not None:
            if tb.tb_frame.f_code.co_filename == self.file:
                place = f" at {self.file}, line {tb.tb_lineno}"
            for value in tb.tb_frame.f_locals.values():
                if isinstance(value, Progress):
                    rid = value.id
            tb = tb.tb_next
        trace = "".join(traceback.format_exception(error, chain=False))
        return {
            "said": said(error)[:2000],
            "place": place,
            "trace": trace[-4000:],
            "request": rid,
        }


def main(hello: dict[str, Any]) -> None:
    """Serve until the parent hangs up."""
    # Lines of the protocol get descriptors of their own; what the policy prints goes elsewhere.
    replies, requests = os.dup(1), os.fdopen(os.dup(0), "rb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = os.fdopen(0, closefd=False)
    limit(hello["limits"])
    watchman = Watchman()
    sys.addaudithook(watchman)
    servant = Servant(hello, watchman)
    for line in requests:
        told = servant.answer(json.loads(line))
        try:
            text = json.dumps(told)
        except (TypeError, ValueError, RecursionError):
            text = json.dumps({"other": brief(told.get("plan"))})
        data = text.encode("ascii") + b"\n"
        while data:
            data = data[os.write(replies, data) :]
