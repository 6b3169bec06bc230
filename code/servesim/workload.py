"""Where requests come from: generators with a seed, and files.

Every generator draws, per request and in this order, the gap to the arrival, the prompt length
and the output length from one `random.Random(seed)`. Arrivals are summed up in seconds and each
is rounded once to the nanosecond.
"""

from __future__ import annotations

import bisect
import csv
import json
import math
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from functools import partial
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import Any, TextIO, TypeAlias

from . import reading
from .checks import MOST, file_name, is_number, list_of, one_of, seed_number
from .errors import InputError, brief
from .request import MAX_SECONDS, NS_PER_S, Request, ns_from_s

Lengths: TypeAlias = int | tuple[int, int] | Sequence[int] | str
"""Token counts: ``512``, a range ``(50, 300)``, a choice ``[128, 256]``, or text.

As text: ``"512"``, ``"50-300"`` (uniform), ``"128|256|512"`` (each as likely as the others), or a
table's name.
"""

MAX_REQUESTS = 100_000_000
MIN_CV, MAX_CV = 0.001, 1000

PERCENTS = (
    *(0, 1, 2.5, 5, 10, 15, 20, 25, 30, 35, 40, 45, 50),
    *(55, 60, 65, 70, 75, 80, 85, 90, 95, 97.5, 99, 99.9, 100),
)

# Percentiles of the Azure LLM inference traces of November 2023 (Patel et al., "Splitwise",
# ISCA 2024; CC-BY 4.0) and of Mooncake's synthetic trace (Qin et al., FAST 2025; Apache-2.0):
# prompt and output tokens at PERCENTS.
LENGTH_TABLES: dict[str, dict[str, tuple[int, ...]]] = {
    "azure_conv": {
        "prompt": (
            *(2, 29, 120, 181, 207, 372, 387, 396, 403, 414, 703, 984, 1020),
            *(1045, 1071, 1097, 1130, 1189, 1315, 1876, 2735, 4083, 4092, 4142, 6212, 14050),
        ),
        "output": (
            *(7, 16, 28, 41, 54, 67, 77, 85, 91, 96, 103, 113, 129),
            *(151, 177, 217, 384, 395, 400, 411, 424, 451, 522, 601, 954, 1000),
        ),
    },
    "azure_code": {
        "prompt": (
            *(3, 17, 44, 75, 147, 232, 386, 578, 770, 938, 1075, 1261, 1469),
            *(1690, 1909, 2164, 2433, 2745, 3192, 3919, 5186, 7302, 7435, 7436, 7437, 7437),
        ),
        "output": (
            *(6, 6, 6, 6, 7, 7, 8, 9, 9, 10, 11, 12, 13),
            *(14, 16, 18, 20, 24, 29, 39, 55, 90, 145, 252, 824, 1899),
        ),
    },
    "mooncake": {
        "prompt": (
            *(13, 16, 19, 22, 30, 45, 88, 277, 913, 2777, 4365, 6657, 11587),
            *(14724, 16290, 17642, 19409, 23175, 28425, 34319, 38611),
            *(48905, 55781, 66456, 191373, 191378),
        ),
        "output": (
            *(1, 2, 2, 2, 4, 6, 8, 11, 16, 22, 32, 49, 69),
            *(92, 126, 169, 210, 250, 289, 332, 389, 519, 658, 768, 813, 893),
        ),
    },
}
"""Length distributions known by name, as percentile tables."""


# -- lengths ------------------------------------------------------------------------------------


def sampler(lengths: Lengths, side: str) -> Callable[[random.Random], int]:
    """Return a function that draws a token count.

    Parameters
    ----------
    lengths : Lengths
    side : {"prompt", "output"}
        Which column of a table to use; also named in errors.

    Raises
    ------
    InputError
        If `lengths` is none of the forms above, or holds no positive whole numbers.
    """
    one_of(("prompt", "output"), side=side)
    if isinstance(lengths, str):
        if lengths in LENGTH_TABLES:
            table = LENGTH_TABLES[lengths][side]
            return lambda rng: _at_percent(table, 100 * rng.random())
        lengths = _parse_lengths(lengths, side)
    if isinstance(lengths, bytes):
        raise _bad_lengths(lengths, side)
    if isinstance(lengths, int):
        (fixed,) = _whole([lengths], lengths, side)
        return lambda rng: fixed
    try:
        values = _whole(lengths, lengths, side)
    except TypeError:
        raise _bad_lengths(lengths, side) from None
    if isinstance(lengths, tuple):
        if len(values) != 2 or values[0] > values[1]:
            raise InputError(f"{side} lengths {brief(lengths)}: a range is (smallest, largest)")
        low, high = values
        return lambda rng: rng.randint(low, high)
    return lambda rng: rng.choice(values)


def _parse_lengths(text: str, side: str) -> Lengths:
    try:
        if "|" in text:
            return [int(part) for part in text.split("|")]
        if "-" in text:
            low, high = text.split("-")
            return int(low), int(high)
        return int(text)
    except ValueError:
        raise _bad_lengths(text, side) from None


def _whole(values: Iterable[object], given: object, side: str) -> list[int]:
    out = [v for v in values if type(v) is int and v >= 1]
    if not out or len(out) != len(list(values)):
        raise _bad_lengths(given, side)
    return out


def _bad_lengths(given: object, side: str) -> InputError:
    tables = ", ".join(LENGTH_TABLES)
    return InputError(
        f"{side} length {brief(given)} is not usable: give positive whole numbers as 512, 50-300 "
        f"or 128|256|512, or the name of a table ({tables})"
    )


def _at_percent(table: Sequence[int], percent: float) -> int:
    """Read a percentile table between its points, by straight lines."""
    i = max(1, bisect.bisect_left(PERCENTS, percent))
    x0, x1 = PERCENTS[i - 1], PERCENTS[i]
    y0, y1 = table[i - 1], table[i]
    return round(y0 + (y1 - y0) * (percent - x0) / (x1 - x0))


# -- generators ---------------------------------------------------------------------------------


def poisson(
    n: int = 200,
    rate: float = 4.0,
    prompt: Lengths = 512,
    output: Lengths = (50, 300),
    seed: int = 0,
) -> list[Request]:
    """Generate independent arrivals: exponential gaps between them.

    Parameters
    ----------
    n : int
        Number of requests.
    rate : float
        Mean arrivals per second.
    prompt, output : Lengths
        Token counts.
    seed : int
        Same seed, same workload.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    return list(_poisson(n, rate, prompt, output, seed))


def _poisson(n: int, rate: float, prompt: Lengths, output: Lengths, seed: int) -> Iterator[Request]:
    mean = _positive("rate", rate)
    return _generate(n, lambda rng: rng.expovariate(mean), prompt, output, seed)


def gamma(
    n: int = 200,
    rate: float = 4.0,
    cv: float = 2.0,
    prompt: Lengths = 512,
    output: Lengths = (50, 300),
    seed: int = 0,
) -> list[Request]:
    """Generate bursty (or regular) arrivals: gamma-distributed gaps.

    Parameters
    ----------
    cv : float
        Coefficient of variation of the gaps, from 0.001 to 1000: 1 is Poisson, above it comes
        in bursts, below it is more regular.
    n, rate, prompt, output, seed
        As in `poisson`.

    Raises
    ------
    InputError
        If a number is out of range.
    """
    return list(_gamma(n, rate, cv, prompt, output, seed))


def _gamma(
    n: int, rate: float, cv: float, prompt: Lengths, output: Lengths, seed: int
) -> Iterator[Request]:
    if not is_number(cv) or not MIN_CV <= cv <= MAX_CV:
        raise InputError(f"cv must be a number from {MIN_CV} to {MAX_CV}, not {brief(cv)}")
    shape = 1 / cv**2
    scale = 1 / (_positive("rate", rate) * shape)
    return _generate(n, lambda rng: rng.gammavariate(shape, scale), prompt, output, seed)


def _generate(
    n: int,
    gap_s: Callable[[random.Random], float],
    prompt: Lengths,
    output: Lengths,
    seed: int,
) -> Iterator[Request]:
    prompts, outputs = sampler(prompt, "prompt"), sampler(output, "output")
    rng, count = random.Random(_seed(seed)), _count(n)

    def requests() -> Iterator[Request]:
        clock = 0.0
        for i in range(count):
            clock += gap_s(rng)
            arrival = ns_from_s(clock, "an arrival (is the rate too small?)")
            yield Request(i, arrival, prompts(rng), outputs(rng))

    return requests()  # what was asked is checked now, not when the first one is taken


def toy(n: int = 60, seed: int = 7) -> list[Request]:
    """System A's workload: Poisson at 40 requests/s, five prompt lengths, 50-300 tokens out."""
    return list(_toy(n, seed))


def _toy(n: int, seed: int) -> Iterator[Request]:
    return _poisson(n, 40.0, [128, 256, 512, 2048, 8192], (50, 300), seed)


def slots(n: int = 64, seed: int = 20261001) -> list[Request]:
    """System B's workload: a request every 2 to 12 ms, lengths from two short lists."""
    return list(_slots(n, seed))


def _slots(n: int, seed: int) -> Iterator[Request]:
    rng, count = random.Random(_seed(seed)), _count(n)

    def requests() -> Iterator[Request]:
        clock_ms = 0.0
        for i in range(count):
            prompt = rng.choice(SLOTS_PROMPTS)
            output = rng.choice(SLOTS_OUTPUTS)
            yield Request(i, round(clock_ms * 1_000_000), prompt, output)
            clock_ms += rng.uniform(2.0, 12.0)

    return requests()


def merge(
    workloads: Mapping[str, Iterable[Request]], priorities: Mapping[str, int] | None = None
) -> list[Request]:
    """Let several tenants share a server: one workload of all their requests.

    Parameters
    ----------
    workloads : mapping of str to iterable of Request
        By tenant. The requests are numbered anew, in order of arrival; of those that arrive at
        the same instant, the tenant named first comes first.
    priorities : mapping of str to int, optional
        For tenants whose requests get another priority than they have.

    Raises
    ------
    InputError
        If a priority is given for a tenant who is not there.
    """
    if not isinstance(workloads, Mapping) or not all(isinstance(t, str) for t in workloads):
        raise InputError(
            f"merge: workloads must be a dict of requests by tenant, not {brief(workloads)}"
        )
    priorities = {} if priorities is None else priorities
    if not isinstance(priorities, Mapping):
        raise InputError(f"merge: priorities must be a dict by tenant, not {brief(priorities)}")
    for tenant in priorities:
        if tenant not in workloads:
            known = ", ".join(workloads)
            raise InputError(f"merge: priorities: there is no tenant {brief(tenant)}, only {known}")
    together = [
        replace(r, tenant=tenant, priority=priorities.get(tenant, r.priority))
        for tenant, requests in workloads.items()
        for r in list_of(Request, f"merge: workloads[{tenant!r}]", requests)
    ]
    together.sort(key=lambda r: r.arrival_ns)
    return [replace(r, id=i) for i, r in enumerate(together)]


class Stream:
    """A workload that is made while it is read: any number of times, and always the same.

    A run of a million requests need not hold them all.

    Parameters
    ----------
    name : {"poisson", "gamma", "toy", "slots"}
    **options
        As for the function of that name.

    Raises
    ------
    InputError
        If the name is not known or an option is out of range.
    """

    def __init__(self, name: str, **options: Any) -> None:
        makers: dict[str, tuple[Callable[..., Any], Callable[..., Iterator[Request]]]] = {
            "poisson": (poisson, _poisson),
            "gamma": (gamma, _gamma),
            "toy": (toy, _toy),
            "slots": (slots, _slots),
        }
        if not isinstance(name, str) or name not in makers:
            raise InputError(f"unknown workload {brief(name)}; known are {', '.join(makers)}")
        listed, streamed = makers[name]
        known = {k: p.default for k, p in signature(listed).parameters.items()}
        for key in options:
            if key not in known:
                raise InputError(
                    f"workload {name!r}: unknown option {key!r}; known are {', '.join(known)}"
                )
        self._make = partial(streamed, **{**known, **options})
        self._count: int = options.get("n", known["n"])
        iter(self)  # is refused now if an option is out of range

    def __iter__(self) -> Iterator[Request]:
        return self._make()

    def __len__(self) -> int:
        return self._count


SLOTS_PROMPTS = (128, 256, 512, 1024)
SLOTS_OUTPUTS = (16, 24, 32, 48, 64, 96, 128, 256, 512)


def _count(n: int) -> int:
    if type(n) is not int or not 1 <= n <= MAX_REQUESTS:
        raise InputError(
            f"the number of requests must be a whole number from 1 to {MAX_REQUESTS}, "
            f"not {brief(n)}"
        )
    return n


def _seed(seed: int) -> int:
    seed_number(seed=seed)
    return seed


def _positive(name: str, value: float) -> float:
    if not (is_number(value) and 0 < value <= MOST):
        raise InputError(f"{name} must be a positive number up to {MOST:.0e}, not {brief(value)}")
    return float(value)


# -- files --------------------------------------------------------------------------------------


def load(path: str | Path) -> list[Request]:
    """Read a workload from a file: Azure or plain CSV, or Mooncake JSONL, also as ``.gz``.

    Raises
    ------
    InputError
        Naming the file, and the line if one is to blame.
    """
    file_name(path=path)
    path = Path(path)
    name = path.name.removesuffix(".gz")
    if name.endswith(".csv"):
        return list(_read_csv(path))
    if name.endswith(".jsonl"):
        return list(_read_mooncake(path))
    raise InputError(f"{path}: a workload file ends in .csv, .jsonl, .csv.gz or .jsonl.gz")


def _open(path: Path) -> TextIO:
    try:
        return reading.text_of(path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from None


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines that hold something, with their numbers from 1 on."""
    number = 0
    with _open(path) as file:
        try:
            for number, line in enumerate(reading.lines(file, path), 1):
                if line.strip():
                    yield number, line
        except UnicodeDecodeError:
            raise InputError(f"{path}, after line {number}: not UTF-8 text") from None
        except (EOFError, OSError, zlib.error) as error:
            raise InputError(f"{path}, after line {number}: {error}") from None


def _read_csv(path: Path) -> Iterator[Request]:
    """Read a CSV with a header: Azure's three columns, or our own.

    Own columns: ``arrival_s, prompt_len, output_len`` and, if wanted, ``priority, tenant``. Azure's
    are ``TIMESTAMP, ContextTokens, GeneratedTokens``; its first row arrives at 0.
    """
    rows = _lines(path)
    number, header = next(rows, (1, ""))
    columns = [c.strip() for c in header.split(",")]
    if {"TIMESTAMP", "ContextTokens", "GeneratedTokens"} <= set(columns):
        names, when = ("TIMESTAMP", "ContextTokens", "GeneratedTokens"), _azure_ns
    elif {"arrival_s", "prompt_len", "output_len"} <= set(columns):
        names, when = ("arrival_s", "prompt_len", "output_len"), _seconds_ns
    else:
        raise InputError(
            f"{path}, line {number}: the header must name the columns arrival_s, prompt_len "
            "and output_len (or Azure's TIMESTAMP, ContextTokens, GeneratedTokens)"
        )
    for column in columns:
        if column not in (*names, "priority", "tenant"):
            raise InputError(f"{path}, line {number}: unknown column {column!r}")
        if columns.count(column) > 1:
            raise InputError(f"{path}, line {number}: column {column!r} is there twice")

    def parse(line: str, origin: int | None, index: int) -> tuple[int, Request]:
        (cells,) = csv.reader([line], strict=True)
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells, the header has {len(columns)} columns")
        row = dict(zip(columns, cells, strict=True))
        time = when(row[names[0]].strip())
        start = time if origin is None and when is _azure_ns else origin or 0
        priority = _int(row.get("priority") or "0", "priority")
        prompt, output = (_int(row[name], name) for name in names[1:])
        tenant = row.get("tenant", "")
        if time < start:
            raise ValueError(EARLY)
        return start, Request(index, time - start, prompt, output, priority, tenant)

    yield from _requests(path, rows, parse)


def _read_mooncake(path: Path) -> Iterator[Request]:
    """Read Mooncake's JSON lines: ``timestamp`` (ms), ``input_length``, ``output_length``."""

    def parse(line: str, origin: int | None, index: int) -> tuple[int, Request]:
        row = json.loads(line)
        if not isinstance(row, dict):
            raise ValueError("a line must be a JSON object")
        missing = [k for k in ("timestamp", "input_length", "output_length") if k not in row]
        if missing:
            raise ValueError(f"{missing[0]!r} is missing")
        ms = row["timestamp"]
        if type(ms) not in (int, float):
            raise ValueError(f"timestamp {ms!r} is not a number of ms")
        arrival = _seconds_ns(str(ms)) // 1000
        return 0, Request(index, arrival, row["input_length"], row["output_length"])

    yield from _requests(path, _lines(path), parse)


EARLY = "it arrives before the line above; sort the file by arrival"


def _requests(
    path: Path,
    rows: Iterable[tuple[int, str]],
    parse: Callable[[str, int | None, int], tuple[int, Request]],
) -> Iterator[Request]:
    """Parse lines into requests; whatever is wrong with one is told with its number."""
    origin: int | None = None
    last: Request | None = None
    for index, (number, line) in enumerate(rows):
        try:
            origin, request = parse(line, origin, index)
            if last is not None and request.arrival_ns < last.arrival_ns:
                raise ValueError(EARLY)
        except (ValueError, RecursionError, csv.Error) as error:
            why = str(error).removeprefix(f"request {index}: ")
            raise InputError(f"{path}, line {number}: {why}") from None
        last = request
        yield request
    if last is None:
        raise InputError(f"{path}: the workload is empty: give at least one request")


def _int(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} {brief(text.strip())} is not a whole number") from None


def _seconds_ns(text: str) -> int:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_SECONDS:
        shown = brief(text)
        raise ValueError(f"arrival {shown} is not a number of seconds from 0 to {MAX_SECONDS}")
    if not seconds:  # as an exact fraction, 1e-999999999 would fill the memory
        return 0
    return round(Fraction(text) * NS_PER_S)


def _azure_ns(text: str) -> int:
    """Parse ``2023-11-16 18:15:46.6805900`` into nanoseconds; `datetime` keeps six digits only."""
    seconds, _, fraction = text.partition(".")
    try:
        whole = datetime.strptime(seconds, "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC)
        digits = fraction.ljust(9, "0")
        if not (digits.isascii() and digits.isdigit()):
            raise ValueError
    except ValueError:
        raise ValueError(f"timestamp {text!r} is not like 2023-11-16 18:15:46.6805900") from None
    return round(whole.timestamp()) * NS_PER_S + int(digits[:9])


def burstiness(requests: Sequence[Request]) -> float:
    """Return the coefficient of variation of the gaps between arrivals (1 for Poisson)."""
    requests = list_of(Request, "requests", requests)
    gaps = [b.arrival_ns - a.arrival_ns for a, b in pairwise(requests)]
    if not gaps or not (mean := sum(gaps) / len(gaps)):
        return 0.0
    return math.sqrt(sum((g - mean) ** 2 for g in gaps) / len(gaps)) / mean
