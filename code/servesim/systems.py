"""The two published toy programs, as settings of the one engine.

System A ("toy") compares four modes, system B ("slots") compares two. Each mode is a policy, a
price list and a few named quirks; the reports below are the source programs' own, with their own
definitions of throughput and percentiles.
"""

from __future__ import annotations

import math
from typing import Any

from . import cost, workload
from .checks import whole_from
from .engine import simulate
from .kv import KVCache
from .metrics import Distribution, Result
from .policies import Chunked, Continuous, Naive, Static
from .request import NS_PER_MS, NS_PER_S, NS_PER_US
from .table import told

TOY_KV = KVCache(blocks=1800, block_size=16)

TOY_TITLES = {
    "naive": "NAIVE",
    "static": "STATIC (batch=16, padded)",
    "continuous": "CONTINUOUS (no chunk)",
    "continuous_chunked": "CONTINUOUS + CHUNKED",
}


def toy_modes(n: int = 60, seed: int = 7) -> dict[str, Result]:
    """Run system A's four modes.

    Quirks: in all four, the token that the prefill makes does not count and `output_len` more
    follow. Naive and static have no KV limit, and static has prices of its own. The two
    continuous modes stamp the first token inside the step.
    """
    requests = workload.toy(n, seed)
    quirks: dict[str, Any] = {"count_first_token": False, "stamp_inside_step": True}
    return {
        "naive": simulate(requests, Naive(), cost=cost.TOY, count_first_token=False),
        "static": simulate(requests, Static(16), cost=cost.TOY_STATIC, count_first_token=False),
        "continuous": simulate(requests, Continuous(), cost=cost.TOY, kv=TOY_KV, **quirks),
        "continuous_chunked": simulate(
            requests, Chunked(chunk=512), cost=cost.TOY, kv=TOY_KV, **quirks
        ),
    }


def toy_report(n: int = 60, seed: int = 7) -> dict[str, Any]:
    """Return system A's report, ready for JSON."""
    modes = toy_modes(n, seed)
    return {
        "system": "toy_modes",
        "n": n,
        "seed": seed,
        "workload": [
            {
                "id": r.id,
                "prompt_len": r.prompt_len,
                "output_len": r.output_len,
                "arrival_s": r.arrival_s,
            }
            for r in workload.toy(n, seed)
        ],
        "modes": {name: _toy_mode(result) for name, result in modes.items()},
    }


def _toy_mode(result: Result) -> dict[str, Any]:
    end_s = result.end_ns / NS_PER_S
    return {
        "end_s": end_s,
        "output_tokens": result.output_tokens,
        "throughput_tok_s": result.output_tokens / end_s,
        "mean_ttft_ms": result.ttft_ms.mean,
        "p99_itl_ms": result.itl_ms.percentile(99, "toy"),
        "itl_samples": len(result.itl_ms),
        "finished": len(result.finished),
        "per_request": [
            {
                "id": r.request.id,
                "first_token_s": (r.first_token_ns or 0) / NS_PER_S,
                "last_token_s": (r.last_token_ns or 0) / NS_PER_S,
            }
            for r in result.records
        ],
    }


def toy_rows(report: dict[str, Any]) -> list[list[str]]:
    """Return system A's table: header and one row per mode, as printed text."""
    rows = [["mode", "throughput tok/s", "mean TTFT ms", "P99 ITL ms", "finished"]]
    for name, title in TOY_TITLES.items():
        mode = report["modes"][name]
        rows.append(
            [
                title,
                f"{mode['throughput_tok_s']:.0f}",
                f"{mode['mean_ttft_ms']:.1f}",
                f"{mode['p99_itl_ms']:.1f}",
                f"{mode['finished']}/{report['n']}",
            ]
        )
    return rows


def slot_modes(
    requests: int = 64,
    slots: int = 8,
    step_ms: float = 8.0,
    prefill_us_per_tok: float = 12.0,
    seed: int = 20261001,
) -> dict[str, Result]:
    """Run system B's two modes.

    Quirks: static does not count the token that the prefill makes. Continuous processes each
    prompt alone, and while a slot is free it waits for the next arrival.
    """
    whole_from(1, slots=slots)
    cost.whole("step_ms", step_ms, NS_PER_MS)
    cost.whole("prefill_us_per_tok", prefill_us_per_tok, NS_PER_US)
    work = workload.slots(requests, seed)
    prices = cost.Affine(
        decode_step_ms=step_ms, prefill_us=prefill_us_per_tok, padding_priced_once=True
    )
    serial = Continuous(max_running=slots, prefill_alone=True, wait_for_arrivals=True)
    return {
        "static": simulate(work, Static(slots), cost=prices, count_first_token=False),
        "continuous": simulate(work, serial, cost=prices),
    }


def slot_report(
    requests: int = 64,
    slots: int = 8,
    step_ms: float = 8.0,
    prefill_us_per_tok: float = 12.0,
    seed: int = 20261001,
) -> dict[str, Any]:
    """Return system B's report, ready for JSON."""
    modes = slot_modes(requests, slots, step_ms, prefill_us_per_tok, seed)
    work = workload.slots(requests, seed)
    lengths = [r.output_len for r in work]
    mean = sum(lengths) / len(lengths)
    spread = math.sqrt(sum((x - mean) ** 2 for x in lengths) / len(lengths))
    told = {name: _slot_mode(result) for name, result in modes.items()}
    static, continuous = told["static"], told["continuous"]
    return {
        "system": "slot_modes",
        "n": requests,
        "slots": slots,
        "step_ms": step_ms,
        "prefill_us_per_token": prefill_us_per_tok,
        "seed": seed,
        "output_len_values": list(workload.SLOTS_OUTPUTS),
        "output_len_cv": spread / mean,
        "workload": [
            {
                "id": r.id,
                "prompt_len": r.prompt_len,
                "output_len": r.output_len,
                "arrival_ms": r.arrival_ms,
            }
            for r in work
        ],
        "modes": told,
        "makespan_ratio": _ratio(static["makespan_ms"], continuous["makespan_ms"]),
        "throughput_ratio": _ratio(continuous["throughput_tok_s"], static["throughput_tok_s"]),
    }


def _slot_mode(result: Result) -> dict[str, Any]:
    makespan_ms = result.end_ns / NS_PER_MS
    e2e = result.e2e_ms
    return {
        "makespan_ms": makespan_ms,
        "output_tokens": result.output_tokens,
        "throughput_tok_s": _ratio(result.output_tokens, makespan_ms / 1000),
        "e2e_min_ms": e2e.min,
        "e2e_mean_ms": e2e.mean,
        "e2e_p95_ms": e2e.percentile(95, "mlperf"),
        "ttft_mean_ms": result.ttft_ms.mean,
        "per_request": [
            {
                "id": r.request.id,
                "start_ms": (r.first_scheduled_ns or 0) / NS_PER_MS,
                "first_token_ms": (first := r.first_token_ns or 0) / NS_PER_MS,
                "done_ms": (done := r.last_token_ns or 0) / NS_PER_MS,
                "tpot_ms": (done - first) / max(1, r.request.output_len - 1) / NS_PER_MS,
            }
            for r in result.records
        ],
    }


def _ratio(a: float | None, b: float | None) -> float | None:
    """Divide; None if that has no meaning (nothing took any time)."""
    return a / b if a is not None and b else None


def tpot_ms(result: Result) -> Distribution:
    """Return system B's TPOT: (done - first) / max(1, output - 1), in milliseconds."""
    return Distribution.of(r["tpot_ms"] for r in _slot_mode(result)["per_request"])


def slot_lines(report: dict[str, Any]) -> list[str]:
    """Return system B's report as lines of text."""
    values = ", ".join(map(str, report["output_len_values"]))
    lines = [
        f"{report['n']} requests, {report['slots']} slots, {report['step_ms']} ms per decode step, "
        f"{report['prefill_us_per_token']} us per prompt token, seed {report['seed']}",
        f"output lengths drawn from {values}; coefficient of variation "
        f"{report['output_len_cv']:.2f}",
        "",
    ]
    for name, mode in report["modes"].items():
        tpot = Distribution.of(r["tpot_ms"] for r in mode["per_request"]).mean
        e2e = "/".join(f"{mode[f'e2e_{k}_ms']:.1f}" for k in ("min", "mean", "p95"))
        lines += [
            f"{name}",
            f"  makespan                 {mode['makespan_ms']:.1f} ms",
            f"  output tokens            {mode['output_tokens']}",
            f"  throughput               {told(mode['throughput_tok_s'], '.1f')} tok/s",
            f"  E2E min/mean/p95         {e2e} ms",
            f"  mean TTFT                {mode['ttft_mean_ms']:.1f} ms",
            f"  mean TPOT                {told(tpot, '.2f')} ms",
            "",
        ]
    lines += [
        f"static / continuous makespan    {told(report['makespan_ratio'], '.2f')}x",
        f"continuous / static throughput  {told(report['throughput_ratio'], '.2f')}x",
    ]
    return lines
