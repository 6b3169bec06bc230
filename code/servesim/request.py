"""A request: what a client asked, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from .checks import is_number
from .errors import InputError, brief

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000

MAX_TOKENS = 100_000_000
"""Longest prompt or output accepted: a typing mistake should not run for a year."""

MAX_SECONDS = 10**9
"""Latest arrival accepted, some 30 years: what comes after it still fits a 64-bit clock."""

LATEST_NS = 2**63 - 1
"""Where the clock ends: the last nanosecond that 64 bits can count."""


def ns_from_s(seconds: float, what: str = "a time") -> int:
    """Round a time in seconds to the nearest whole nanosecond.

    Raises
    ------
    InputError
        If `seconds` is not a number, is negative, or beyond `MAX_SECONDS`.
    """
    if not is_number(seconds) or not 0 <= seconds <= MAX_SECONDS:
        raise InputError(
            f"{what} must be a number of seconds from 0 to {MAX_SECONDS}, not {brief(seconds)}"
        )
    return round(seconds * NS_PER_S)


@dataclass(frozen=True, slots=True)
class Request:
    """What a client asked for. It never changes.

    Parameters
    ----------
    id : int
        Unique within a workload.
    arrival_ns : int
        When it reaches the server, in nanoseconds from the start of the run.
    prompt_len, output_len : int
        Tokens in the prompt and tokens to be produced, at least 1 each. The server does
        not know `output_len` beforehand; only the engine does.
    priority : int
        Smaller is more urgent (vLLM's convention).
    tenant : str
        Whose request it is.

    Raises
    ------
    InputError
        If a length is not a positive whole number or the arrival is not a time.
    """

    id: int
    arrival_ns: int
    prompt_len: int
    output_len: int
    priority: int = 0
    tenant: str = ""

    def __post_init__(self) -> None:
        if type(self.id) is not int or not -(2**63) <= self.id < 2**63:
            raise InputError(
                f"a request's id must be a whole number of at most 64 bits, not {brief(self.id)}"
            )
        latest = MAX_SECONDS * NS_PER_S
        if type(self.arrival_ns) is not int or not 0 <= self.arrival_ns <= latest:
            raise InputError(
                f"request {self.id}: arrival_ns must be a whole number of nanoseconds "
                f"from 0 to {latest}, not {brief(self.arrival_ns)}"
            )
        for name, value in (("prompt_len", self.prompt_len), ("output_len", self.output_len)):
            if type(value) is not int or not 1 <= value <= MAX_TOKENS:
                raise InputError(
                    f"request {self.id}: {name} must be a whole number of tokens "
                    f"from 1 to {MAX_TOKENS}, not {brief(value)}"
                )
        if type(self.priority) is not int or not -(2**63) <= self.priority < 2**63:
            raise InputError(
                f"request {self.id}: priority must be a whole number of at most 64 bits, "
                f"not {brief(self.priority)}"
            )
        if type(self.tenant) is not str:
            raise InputError(f"request {self.id}: tenant must be text, not {brief(self.tenant)}")

    @property
    def arrival_s(self) -> float:
        """Arrival in seconds."""
        return self.arrival_ns / NS_PER_S

    @property
    def arrival_ms(self) -> float:
        """Arrival in milliseconds."""
        return self.arrival_ns / NS_PER_MS


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request has come: all that a scheduler can see of it, and only see.

    There is one rule of progress. A request has ``total = prompt_len + produced`` tokens, of
    which ``computed`` are in the KV cache. A step schedules some of the ``missing`` ones; when
    none is missing, one new token is sampled. Prefill, chunk, decode and the recomputation
    after a preemption are all this rule.

    Attributes
    ----------
    id, arrival_ns, prompt_len, priority, tenant
        As in `Request`.
    computed : int
        Tokens whose keys and values are in the cache.
    produced : int
        Tokens sampled so far.
    blocks : int
        KV blocks held.
    preemptions : int
        How often it was thrown out of the cache.
    predicted_output : int or None
        Tokens it is expected to produce. None, unless the policy declares
        ``knows_output_length = True``: a real scheduler does not see this.
    """

    id: int
    arrival_ns: int
    prompt_len: int
    priority: int = 0
    tenant: str = ""
    computed: int = 0
    produced: int = 0
    blocks: int = 0
    preemptions: int = 0
    predicted_output: int | None = field(default=None)

    __hash__ = None  # type: ignore[assignment]  # it changes, by `write_...`

    @property
    def total(self) -> int:
        """Tokens of the prompt and of the output so far."""
        return self.prompt_len + self.produced

    @property
    def missing(self) -> int:
        """Tokens not yet in the cache: the rest of the prompt, or 1 when decoding."""
        return self.prompt_len + self.produced - self.computed

    @property
    def decoding(self) -> bool:
        """True if one more scheduled token gives one more output token."""
        return self.produced > 0 and self.prompt_len + self.produced - self.computed == 1


def _writer(name: str) -> Callable[[Progress, int], None]:
    write: Callable[[Progress, int], None] = getattr(Progress, name).__set__
    return write


write_computed, write_produced = _writer("computed"), _writer("produced")
write_blocks, write_preemptions = _writer("blocks"), _writer("preemptions")
"""Write down how far a request has come: for the engine, its batch and its pool only."""


class _Open:
    """A progress that can still be written to as usual."""

    __slots__ = tuple(f.name for f in fields(Progress))

    def __init__(self, r: Request, predicted_output: int | None) -> None:
        self.id, self.arrival_ns, self.prompt_len = r.id, r.arrival_ns, r.prompt_len
        self.priority, self.tenant = r.priority, r.tenant
        self.computed = self.produced = self.blocks = self.preemptions = 0
        self.predicted_output = predicted_output


def new_progress(r: Request, predicted_output: int | None) -> Progress:
    """Return the progress of a request that has just arrived.

    The same as ``Progress(...)``. It is made unfrozen and then frozen, which takes a fifth of
    the time.
    """
    progress: Any = _Open(r, predicted_output)
    progress.__class__ = Progress
    frozen: Progress = progress
    return frozen
