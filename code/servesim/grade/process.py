"""A student's policy in a process of its own.

The parent simulates, audits and judges. The child is asked for plans, one line of JSON each, and
can therefore hand in bad plans but no verdict. Its time, memory and output are bounded, and it is
killed with all that it has started.
"""

from __future__ import annotations

import contextlib
import functools
import json
import marshal
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any

from ..checks import by_annotation
from ..engine import SupportsPlan
from ..errors import InputError, PlanError, PolicyError
from ..plan import Plan, View
from .assignment import Case
from .isolation import ENVIRONMENT, FLAGS, PYTHON, Isolation
from .judge import StudentError, serving
from .source import ALLOWED, Refused

MIB = 2**20

MODULES = (
    *("errors", "checks", "request", "runs", "kv", "batch", "plan", "ledger", "job", "audit"),
    *("grade.load", "grade.child"),
)
"""Modules that the child is given, in an order in which each finds those before it."""

BOOT = """
import marshal, sys, types
read = sys.stdin.buffer.raw.read
def whole(n):
    data = b""
    while len(data) < n:
        more = read(n - len(data))
        if not more:
            sys.exit("the grader is gone")
        data += more
    return data
codes, names, hello = marshal.loads(whole(int.from_bytes(whole(8), "big")))
class Shown(types.ModuleType):
    def __getattr__(self, name):
        raise AttributeError(f"servesim.{name}: a policy may use only {', '.join(names)}")
for name in ("servesim", "servesim.grade"):
    sys.modules[name] = Shown(name)
    sys.modules[name].__path__ = []
for name, code in codes:
    module = sys.modules[name] = types.ModuleType(name)
    module.__package__ = name.rpartition(".")[0]
    exec(code, module.__dict__)
shown = sys.modules["servesim"]
shown.Plan, shown.View = sys.modules["servesim.plan"].Plan, sys.modules["servesim.plan"].View
shown.Progress = sys.modules["servesim.request"].Progress
sys.modules["servesim.grade.child"].main(hello)
"""
"""Makes modules of what the parent sends, so that the child need not see the parent's files."""


@dataclass(frozen=True)
class Limits:
    """What a submission may take.

    Attributes
    ----------
    plan_s : float
        Seconds for one plan, by the wall clock: far more than an honest policy needs.
    load_s : float
        Seconds until the file is loaded and the policy built.
    total_s : float
        Seconds for all cases together.
    memory : int
        Bytes of address space.
    output : int
        Bytes that it may print.
    answer : int
        Bytes of one plan.
    """

    plan_s: float = 5.0
    load_s: float = 10.0
    total_s: float = 120.0
    memory: int = 512 * MIB
    output: int = MIB
    answer: int = MIB

    def of_process(self) -> dict[str, int]:
        """Return the limits that the system itself enforces."""
        return {
            "RLIMIT_AS": self.memory,
            "RLIMIT_CPU": round(self.total_s) + 1,
            "RLIMIT_FSIZE": 0,
            "RLIMIT_NPROC": 0,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_CORE": 0,
        }

    def __post_init__(self) -> None:
        by_annotation(self)


class Child:
    """One submission's process. Use it in a ``with`` statement.

    Parameters
    ----------
    text, file, class_name : str
        The student's file and what to build.
    isolation : Isolation
        What the system puts around the process.
    limits : Limits

    Attributes
    ----------
    output : bytes
        What the policy printed.
    calls : int
        Plans asked for.
    slow : bool
        Whether it was ended because its time was over.
    """

    def __init__(
        self, text: str, file: str, class_name: str, isolation: Isolation, limits: Limits
    ) -> None:
        self.limits, self.output, self.calls = limits, b"", 0
        self.slow = False
        self._answers = 0
        self._left = limits.total_s
        self._replies = b""
        self._token = f"{os.getpid()}-{time.monotonic_ns()}"
        hello = {
            "text": text,
            "file": file,
            "class": class_name,
            "limits": limits.of_process(),
        }
        packed = marshal.dumps((_codes(), ALLOWED, hello))
        self._first = len(packed).to_bytes(8, "big") + packed
        command = isolation.command([PYTHON, *FLAGS, "-c", BOOT])
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**ENVIRONMENT, TOKEN: self._token},
                cwd="/",
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise InputError(f"no process can be started ({error})") from None
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.kill()

    def build(self, case: Case) -> SupportsPlan:
        """Build a fresh policy for a case.

        Raises
        ------
        Refused
        PolicyError
            If its ``__init__`` fails.
        """
        told = self.ask({"case": dict(case.options)}, self.limits.load_s, "loading the file")
        if "raised" in told:
            error = StudentError(**told["raised"])
            if not told.get("loaded"):
                raise Refused(f"the file failed to load: {error.said}{error.place}")
            raise PolicyError("Policy", None, None, error, "__init__")
        return _Remote(self)

    def plan(self, view: View) -> object:
        """Ask for a plan."""
        self.calls += 1
        told = self.ask({"view": view.to_json()}, self.limits.plan_s, f"plan in step {view.step}")
        try:
            if "plan" in told:
                data = dict(told["plan"])
                if isinstance(data["reasons"], list):
                    data["reasons"] = dict(data["reasons"])
                return Plan(**data)
            if "raised" in told:
                failed: Exception = StudentError(**told["raised"])
            elif "broken" in told:
                step, request, rule, detail = told["broken"]
                failed = PlanError(int(step), request, str(rule), str(detail))
            else:
                return _Other(str(told["other"]))
        except (TypeError, ValueError, KeyError):
            raise Refused("the policy writes to the grader's channel") from None
        raise failed

    def ask(self, message: dict[str, Any], seconds: float, doing: str) -> dict[str, Any]:
        """Send a line and return the line that answers it.

        Raises
        ------
        Refused
            If there is none in time, or it is no answer.
        """
        start = time.monotonic()
        line = self._exchange(json.dumps(message).encode() + b"\n", seconds, doing)
        self._left -= time.monotonic() - start
        try:
            told = json.loads(line)
        except (ValueError, RecursionError):
            told = None
        if not isinstance(told, dict) or self._replies:
            raise Refused("the policy writes to the grader's channel")
        if "refused" in told:
            raise Refused(str(told["refused"]))
        return told

    def _exchange(self, data: bytes, seconds: float, doing: str) -> bytes:
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        data, self._first = self._first + data, b""
        allowed = min(seconds, self._left)
        deadline = time.monotonic() + allowed
        listened = [stdout, stderr]
        while b"\n" not in self._replies:
            left = deadline - time.monotonic()
            if left <= 0:
                self.slow = True
                self.kill()
                raise Refused(f"{doing} took more than {allowed:.3g} s")
            readable, writable, _ = select.select(listened, [stdin] if data else [], [], left)
            if writable:
                try:
                    data = data[os.write(stdin.fileno(), data) :]
                except BlockingIOError:
                    pass
                except OSError:  # it is gone; its end is read below
                    data = b""
            if stderr in readable:
                piece = os.read(stderr.fileno(), 65536)
                self.output += piece
                if not piece:
                    listened.remove(stderr)
                if len(self.output) > self.limits.output:
                    self.kill()
                    raise Refused(f"the policy printed more than {self.limits.output} bytes")
            if stdout in readable:
                piece = os.read(stdout.fileno(), 65536)
                self._replies += piece
                if not piece:
                    raise Refused(self._ended(doing))
                self._answers += len(piece)
                most = self.limits.answer
                if len(self._replies) > most or self._answers > ALL_ANSWERS * most:
                    self.kill()
                    raise Refused(f"{doing} gave an answer of more than {most} bytes")
        line, _, self._replies = self._replies.partition(b"\n")
        return line

    def listen(self) -> None:
        """Take in what has been printed since the last answer."""
        stderr = self._process.stderr
        with contextlib.suppress(OSError, ValueError):
            while stderr is not None and len(self.output) <= self.limits.output:
                piece = os.read(stderr.fileno(), 65536)  # raises when there is nothing
                if not piece:
                    return
                self.output += piece

    def _ended(self, doing: str) -> str:
        """Say why the process is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(1.0)
        status = self._process.returncode
        self.kill()
        if status is None:
            return f"the policy closed the grader's channel while {doing}"
        number = -status if status < 0 else status - 128 if status > 128 else 0
        if number in (signal.SIGXCPU, signal.SIGKILL):
            return f"{doing} ended its process: it took too much time or memory"
        if number == signal.SIGSEGV:
            return f"{doing} crashed its process"
        last = self.output.decode("utf-8", "replace").strip().splitlines()[-1:]
        more = f" ({last[0][:200]})" if last and status == 1 else ""
        return f"{doing} ended its process, with status {status}{more}"

    def kill(self) -> None:
        """End the process and all that it started, and wait until it is gone."""
        if self._process.poll() is None or self._process.stdin:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._process.wait()
        sweep_up(self._token)


ALL_ANSWERS = 64
"""All plans together may be so many times as long as one."""

TOKEN = "SERVESIM_GRADE"
"""Variable in the environment by which a child's descendants are known."""


@functools.cache
def _codes() -> list[tuple[str, CodeType]]:
    folder = Path(__file__).parent.parent
    return [
        (
            f"servesim.{name}",
            compile(
                folder.joinpath(*name.split(".")).with_suffix(".py").read_bytes(),
                f"servesim/{name}.py",
                "exec",
                dont_inherit=True,
            ),
        )
        for name in MODULES
    ]


def sweep_up(token: str) -> None:
    """Kill what a child has left behind, wherever it put itself (on Linux, by its environment)."""
    wanted = f"{TOKEN}={token}".encode()
    clean = 0
    for _ in range(50):  # a fork bomb may be faster once, and not for long
        found = False
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (entry / "environ").read_bytes():
                    found = True
                    os.kill(int(entry.name), signal.SIGKILL)
            except (OSError, ValueError):
                continue
        # Who was born after the list was made, of one who died before it was read, is not in it.
        clean = 0 if found else clean + 1
        if clean == 2:
            return


class _Other:
    """Stands for what a policy returned in place of a plan."""

    def __init__(self, shown: str) -> None:
        self.shown = shown

    def __repr__(self) -> str:
        return self.shown


class _Remote:
    """A policy whose `plan` is asked from the child."""

    def __init__(self, child: Child) -> None:
        self.plan: Callable[[View], Any] = serving(child.plan)

    def __deepcopy__(self, memo: object) -> _Remote:
        return self

    def __repr__(self) -> str:
        return "yours"
