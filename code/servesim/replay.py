"""Run the vllm policy on a recorded trace of vLLM's own scheduler, and print the same steps.

The format ``vllm-sched-trace/1`` is described beside the traces. Its clock counts microseconds.
`replay` never reads the steps in a file: they are what the policy has to reproduce.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import reading
from .checks import file_name, instance, whole_from
from .cost import Affine
from .engine import simulate
from .errors import InputError, brief
from .kv import KVCache
from .metrics import Result
from .policies import VLLM
from .policies.vllm import RELEASES
from .request import NS_PER_US, Request
from .trace import StepRecord

FORMAT = "vllm-sched-trace/1"

_JSON: dict[type, str] = {
    dict: "a JSON object",
    list: "a JSON list",
    int: "a whole number",
    bool: "true or false",
}
_KINDS: dict[str, type] = {
    **dict.fromkeys(("num_gpu_blocks", "max_model_len", "max_steps", "stall_steps"), int),
    **dict.fromkeys(("cost_base_us", "cost_prefill_us", "cost_decode_us"), int),
    **dict.fromkeys(("enable_chunked_prefill", "scheduler_reserve_full_isl"), bool),
}


def read(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the traces in a file: one for ``.json[.gz]``, one per line for ``.jsonl[.gz]``.

    Raises
    ------
    InputError
        Naming the file, and the line if one is to blame.
    """
    file_name(path=path)
    path = Path(path)
    name = path.name.removesuffix(".gz")
    if not name.endswith((".json", ".jsonl")):
        raise InputError(f"{path}: a trace file ends in .json, .json.gz or .jsonl.gz")
    try:
        text = reading.whole(path, path).decode("utf-8-sig")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    lines = text.split("\n") if name.endswith(".jsonl") else [text]
    found = False
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        found = True
        where = f"{path}, line {number}" if len(lines) > 1 else str(path)
        try:
            trace = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: {error}") from None
        if not isinstance(trace, dict) or trace.get("format", FORMAT) != FORMAT:
            raise InputError(f"{where}: not a trace in the format {FORMAT}")
        yield {**trace, "where": where}
    if not found:
        raise InputError(f"{path}: holds no trace")


def replay(trace: dict[str, Any], policy: type[VLLM] = VLLM) -> Result:
    """Run the vllm policy on a trace's workload and settings.

    Parameters
    ----------
    trace : dict
        With ``vllm_version``, ``config``, ``effective``, ``arrivals`` and ``requests``.
    policy : type
        A subclass, to see what a changed rule does.

    Raises
    ------
    InputError
        If a part is missing or not usable.
    """
    with _naming(trace):
        requests, scheduler, options = _setup(trace, policy)
        return simulate(requests, scheduler, record_steps=True, **options)


def setup(
    trace: dict[str, Any], policy: type[VLLM] = VLLM
) -> tuple[list[Request], VLLM, dict[str, Any]]:
    """Return what a trace describes: requests, policy, and the options of `simulate`.

    Parameters
    ----------
    trace : dict
        As for `replay`.
    policy : type

    Raises
    ------
    InputError
        If a part is missing or not usable.
    """
    with _naming(trace):
        return _setup(trace, policy)


@contextmanager
def _naming(trace: dict[str, Any]) -> Iterator[None]:
    """Say of which trace something is missing or not usable."""
    instance(dict, trace=trace)
    where = trace.get("where", "trace")
    try:
        yield
    except KeyError as error:
        raise InputError(f"{where}: {error} is missing") from None
    except (TypeError, AttributeError, ValueError) as error:
        raise InputError(f"{where}: {error}") from None


def _setup(trace: dict[str, Any], policy: type[VLLM]) -> tuple[list[Request], VLLM, dict[str, Any]]:
    if not isinstance(policy, type) or not issubclass(policy, VLLM):
        raise InputError(
            f"policy must be a subclass of servesim.policies.VLLM, not {brief(policy)}"
        )
    _check_kinds(trace, {"config": dict, "effective": dict, "requests": list})
    asked = {**trace["config"], **trace["effective"]}
    if trace["vllm_version"] == "0.11.2":  # has none, whatever its config says
        asked["watermark"] = 0.0
    _check_kinds(asked, _KINDS)
    by_step = trace["arrivals"] == "arrival_step"
    if trace["arrivals"] not in ("arrival_step", "arrival_us"):
        raise InputError(f"arrivals are {trace['arrivals']!r}, not arrival_us or arrival_step")
    if trace["vllm_version"] not in [*RELEASES]:
        known = ", ".join(RELEASES)
        raise InputError(f"vllm_version is {brief(trace['vllm_version'])}; known are {known}")
    for row in trace["requests"]:
        if type(row) is not list or [*map(type, row)] != [int] * 5:
            raise InputError(
                f"a request is {brief(row)}, not five whole numbers: id, arrival, prompt length, "
                "output length, priority"
            )
    requests = [
        Request(rid, arrival if by_step else arrival * NS_PER_US, prompt, output, priority)
        for rid, arrival, prompt, output, priority in trace["requests"]
    ]
    scheduler = policy(
        max_num_batched_tokens=asked["max_num_batched_tokens"],
        max_num_seqs=asked["max_num_seqs"],
        long_prefill_token_threshold=asked["long_prefill_token_threshold"],
        enable_chunked_prefill=asked["enable_chunked_prefill"],
        policy=asked["policy"],
        scheduler_reserve_full_isl=asked.get("scheduler_reserve_full_isl", False),
        watermark=asked.get("watermark", 0.0),
        release=trace["vllm_version"],
    )
    whole_from(0, cost_base_us=asked["cost_base_us"])  # and exact as a float of milliseconds
    prices = Affine(
        base_ms=asked["cost_base_us"] / 1000,
        prefill_us=asked["cost_prefill_us"],
        decode_us=asked["cost_decode_us"],
    )
    options = {
        "cost": prices,
        "kv": KVCache(asked["num_gpu_blocks"], asked["block_size"], null_block=True),
        "never_fits": "try",
        "on_stall": "record",
        "stall_steps": asked["stall_steps"],
        "max_steps": asked["max_steps"],
        "max_model_len": asked["max_model_len"],
        "arrivals_by_step": by_step,
    }
    return sorted(requests, key=lambda r: r.arrival_ns), scheduler, options


def _check_kinds(data: dict[str, Any], kinds: dict[str, type]) -> None:
    for key, kind in kinds.items():
        if key in data and type(data[key]) is not kind:
            raise InputError(f"{key!r} is {brief(data[key])}, not {_JSON[kind]}")


def steps(result: Result) -> list[dict[str, Any]]:
    """Return the steps of a run as the trace format writes them."""
    instance(Result, result=result)
    return [_step(record) for record in result.step_records]


def first_difference(result: Result, trace: dict[str, Any]) -> int | None:
    """Return the place of the first step that is not as recorded, or None if all are equal.

    Parameters
    ----------
    result : Result
        Of `replay`.
    trace : dict
        With the ``steps`` that were recorded.
    """
    instance(dict, trace=trace)
    if type(trace.get("steps")) is not list:
        raise InputError("trace has no list of steps: nothing to compare the run with")
    ours, theirs = steps(result), trace["steps"]
    for i, (a, b) in enumerate(zip(ours, theirs, strict=False)):
        if a != b:
            return i
    return None if len(ours) == len(theirs) else min(len(ours), len(theirs))


def _step(record: StepRecord) -> dict[str, Any]:
    return {
        "i": record.index,
        "t": record.start_ns // NS_PER_US,
        "c": record.cost_ns // NS_PER_US,
        "a": record.arrived,
        "s": [[s.id, s.tokens, int(s.sampled)] for s in record.scheduled],
        "p": record.preempted,
        "f": record.finished,
        "b": list(record.free_blocks),
        "k": [record.work.prefill_tokens, record.work.decodes],
        "r": record.running,
        "w": record.waiting,
    }
