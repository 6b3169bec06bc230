"""What the bug labs share: a workload that is handed in, and tried on the faulty policy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ...engine import SupportsPlan
from ...errors import InputError, brief
from ...kv import blocks_for
from ...request import NS_PER_MS, Request
from ..assignment import Case, Failure, FileRule, Run, literal
from ..judge import run

NAME = "WORKLOAD"
MOST_REQUESTS = 5
LIMITS = {"arrival_ms": (0, 60_000), "prompt_len": (1, 5_000), "output_len": (1, 1_000)}
"""What the numbers of a row may be, so that a run is short."""


def by_hand(*rows: tuple[int, int, int]) -> tuple[Request, ...]:
    """Return a few requests: arrival in ms, prompt and output of each."""
    numbered = enumerate(rows)
    return tuple(Request(i, at * NS_PER_MS, prompt, out) for i, (at, prompt, out) in numbered)


def handed_in(text: str) -> tuple[Request, ...]:
    """Return the workload that a file gives to `WORKLOAD`.

    Parameters
    ----------
    text : str
        Of the file, which is not executed.

    Raises
    ------
    InputError
        If it is not a short list of rows ``(arrival_ms, prompt_len, output_len)`` in order of
        arrival.
    """
    rows = literal(text, NAME)
    if not isinstance(rows, list | tuple) or not rows:
        raise InputError(f"{NAME} is empty: write rows (arrival_ms, prompt_len, output_len)")
    if len(rows) > MOST_REQUESTS:
        raise InputError(f"{NAME} has {len(rows)} requests, at most {MOST_REQUESTS} are allowed")
    for row in rows:
        if not isinstance(row, list | tuple) or len(row) != len(LIMITS):
            raise InputError(f"{NAME}: {brief(row)} is no row (arrival_ms, prompt_len, output_len)")
        for value, (name, (least, most)) in zip(row, LIMITS.items(), strict=True):
            if type(value) is not int or not least <= value <= most:
                raise InputError(
                    f"{NAME}: {name} is a whole number from {least} to {most}, not {brief(value)}"
                )
    if [row[0] for row in rows] != sorted(row[0] for row in rows):
        raise InputError(f"{NAME}: sort the rows by their arrival")
    return by_hand(*rows)


def _too_large(case: Case) -> str:
    """Say which request the cache cannot hold with its longest answer; nothing if none."""
    longest, size, usable = case.options.get("longest", 0), case.kv.block_size, case.kv.usable
    for r in case.requests:
        need = blocks_for(r.prompt_len + longest, size)
        if usable is not None and need > usable:
            return (
                f"request {r.id} with its longest answer, {r.prompt_len} + {longest} tokens, "
                f"needs {need} blocks and the cache has {usable}"
            )
    return ""


def finds_the_fault(
    points: float,
    hint: str,
    case: Case,
    faulty: Callable[[Case], SupportsPlan],
    reference: Callable[[Case], SupportsPlan],
    fails: Callable[[Run], Failure | None],
) -> FileRule:
    """Make the rule that a workload in the file trips the faulty policy, and not the reference.

    Parameters
    ----------
    points, hint
        As in `FileRule`.
    case : Case
        The server; its requests are replaced by those of the file.
    faulty, reference : callable
        Take a case and return a policy.
    fails : callable
        Says how a run fails, if it does.
    """
    given = ", ".join(f"{name}={value!r}" for name, value in case.options.items())
    server = f"tried with {given} and {case.kv.usable} blocks of {case.kv.block_size} tokens"

    def check(text: str) -> Failure | None:
        failure = fault_of(text)
        return failure and replace(failure, detail=f"{failure.detail} ({server})")

    def fault_of(text: str) -> Failure | None:
        try:
            requests = handed_in(text)
            tried = replace(case, name=NAME, requests=requests)
            found, told = run(tried, faulty), run(tried, reference)
        except InputError as error:
            return Failure(NAME, str(error).partition(";")[0])
        if fails(found) is None:
            served = found.result
            detail = (
                f"the policy as it came passes it: {served.count('finished')} of {len(requests)} "
                f"requests are served in {served.steps} steps, and nobody else could be"
            )
            return Failure(NAME, detail)
        if (unfair := fails(told)) is not None:
            why = _too_large(tried) or f"the reference fails too: {unfair.detail}"
            return Failure(NAME, f"no policy could pass it; {why}")
        return None

    demand = (
        f"`{NAME}` has at most {MOST_REQUESTS} requests, makes the policy as it came fail, and not "
        "the reference."
    )
    mended = (
        f"Your policy keeps the other rules. What is missing is in {NAME}: a few requests on which "
        "the policy as it came fails. The line above says what happened on yours."
    )
    return FileRule("find", points, demand, hint, check, runs=2, last_hint=mended)
