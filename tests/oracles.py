"""The two published toy programs once more, written in floats straight from their description.

Nothing here imports the simulator: a mistake would have to be made twice to stay unseen.
Times are in seconds for system A and in milliseconds for system B, as in their reports.
"""

import math
import random
from collections import deque

TOY_TITLES = {
    "naive": "NAIVE",
    "static": "STATIC (batch=16, padded)",
    "continuous": "CONTINUOUS (no chunk)",
    "continuous_chunked": "CONTINUOUS + CHUNKED",
}

# --- system A: four modes

CALL, PER_PROMPT_TOKEN, PER_SEQUENCE = 0.2e-3, 0.04e-3, 0.5e-3


def toy_workload(n, seed):
    rng = random.Random(seed)
    clock, requests = 0.0, []
    for i in range(n):
        clock += rng.expovariate(40.0)
        prompt, output = rng.choice([128, 256, 512, 2048, 8192]), rng.randint(50, 300)
        requests.append({"id": i, "prompt_len": prompt, "output_len": output, "arrival_s": clock})
    return requests


def toy_naive(requests):
    clock, gaps = 0.0, []
    for r in requests:
        clock = max(clock, r["arrival_s"]) + CALL + PER_PROMPT_TOKEN * r["prompt_len"]
        r["first"] = clock
        for _ in range(r["output_len"]):
            clock += PER_SEQUENCE + CALL
            gaps.append(PER_SEQUENCE + CALL)
        r["last"] = clock
    return clock, gaps


def toy_static(requests, size=16):
    clock, gaps = 0.0, []
    for i in range(0, len(requests), size):
        group = requests[i : i + size]
        clock = max(clock, group[-1]["arrival_s"])
        clock += CALL + PER_PROMPT_TOKEN * max(r["prompt_len"] for r in group)
        for r in group:
            r["first"] = clock
        step = PER_SEQUENCE * len(group) / size + CALL
        for k in range(1, max(r["output_len"] for r in group) + 1):
            clock += step
            for r in group:
                if k <= r["output_len"]:
                    gaps.append(step)
                    r["last"] = clock
    return clock, gaps


def toy_continuous(requests, chunk=math.inf, blocks=1800):
    coming, waiting, running = deque(requests), deque(), []
    clock, gaps, free = 0.0, [], blocks
    for r in requests:
        r["left"], r["decoded"] = r["prompt_len"], 0
        r["blocks"] = math.ceil((r["prompt_len"] + r["output_len"]) / 16)
    while coming or waiting or running:
        if not waiting and not running:
            clock = max(clock, coming[0]["arrival_s"])
        while coming and coming[0]["arrival_s"] <= clock:
            waiting.append(coming.popleft())
        while waiting and waiting[0]["blocks"] <= free:
            free -= waiting[0]["blocks"]
            running.append(waiting.popleft())
        prefilled, decoding = 0, []
        for r in running:
            if not r["left"]:
                decoding.append(r)
                continue
            tokens = min(r["left"], chunk)
            r["left"] -= tokens
            prefilled += tokens
            if not r["left"]:
                r["first"] = r["last"] = clock + PER_PROMPT_TOKEN * prefilled
        clock += PER_PROMPT_TOKEN * prefilled + PER_SEQUENCE * len(decoding) + CALL
        for r in decoding:
            gaps.append(clock - r["last"])
            r["last"] = clock
            r["decoded"] += 1
            if r["decoded"] == r["output_len"]:
                running.remove(r)
                free += r["blocks"]
    return clock, gaps


def toy_report(n=60, seed=7):
    modes = {
        "naive": toy_naive,
        "static": toy_static,
        "continuous": toy_continuous,
        "continuous_chunked": lambda requests: toy_continuous(requests, chunk=512),
    }
    workload = toy_workload(n, seed)
    return {
        "system": "toy_modes",
        "n": n,
        "seed": seed,
        "workload": workload,
        "modes": {name: toy_mode(mode, toy_workload(n, seed)) for name, mode in modes.items()},
    }


def toy_mode(mode, requests):
    end, gaps = mode(requests)
    tokens = sum(r["output_len"] for r in requests)
    waits = [r["first"] - r["arrival_s"] for r in requests]
    return {
        "end_s": end,
        "output_tokens": tokens,
        "throughput_tok_s": tokens / end,
        "mean_ttft_ms": 1000 * sum(waits) / len(waits),
        "p99_itl_ms": 1000 * sorted(gaps)[int(0.99 * len(gaps)) - 1],
        "itl_samples": len(gaps),
        "finished": len(requests),
        "per_request": [
            {"id": r["id"], "first_token_s": r["first"], "last_token_s": r["last"]}
            for r in requests
        ],
    }


# --- system B: two modes

OUTPUTS = (16, 24, 32, 48, 64, 96, 128, 256, 512)


def slot_workload(n, seed):
    rng = random.Random(seed)
    clock, requests = 0.0, []
    for i in range(n):
        prompt, output = rng.choice((128, 256, 512, 1024)), rng.choice(OUTPUTS)
        requests.append({"id": i, "prompt_len": prompt, "output_len": output, "arrival_ms": clock})
        clock += rng.uniform(2.0, 12.0)
    return requests


def slot_static(requests, slots, step, prefill):
    clock = 0.0
    for i in range(0, len(requests), slots):
        group = requests[i : i + slots]
        clock = max(clock, group[-1]["arrival_ms"])
        for r in group:
            r["start"] = clock
        clock += prefill * max(r["prompt_len"] for r in group)
        for r in group:
            r["first"] = clock
            r["done"] = clock + step * r["output_len"]
        clock += step * max(r["output_len"] for r in group)


def slot_continuous(requests, slots, step, prefill):
    coming, running, clock = deque(requests), [], 0.0
    while coming or running:
        while coming and len(running) < slots:
            r = coming.popleft()
            clock = r["start"] = max(clock, r["arrival_ms"])
            clock += prefill * r["prompt_len"]
            r["first"], r["tokens"] = clock, 1
            running.append(r)
        clock += step
        for r in running:
            r["tokens"] += 1
            r["done"] = clock
        running = [r for r in running if r["tokens"] < r["output_len"]]


def slot_report(n=64, slots=8, step_ms=8.0, prefill_us=12.0, seed=20261001):
    modes = {"static": slot_static, "continuous": slot_continuous}
    lengths = [r["output_len"] for r in slot_workload(n, seed)]
    mean = sum(lengths) / n
    report = {
        "system": "slot_modes",
        "n": n,
        "slots": slots,
        "step_ms": step_ms,
        "prefill_us_per_token": prefill_us,
        "seed": seed,
        "output_len_values": list(OUTPUTS),
        "output_len_cv": math.sqrt(sum((x - mean) ** 2 for x in lengths) / n) / mean,
        "workload": slot_workload(n, seed),
        "modes": {},
    }
    for name, mode in modes.items():
        requests = slot_workload(n, seed)
        mode(requests, slots, step_ms, prefill_us / 1000)
        report["modes"][name] = slot_mode(requests)
    static, continuous = report["modes"]["static"], report["modes"]["continuous"]
    report["makespan_ratio"] = ratio(static["makespan_ms"], continuous["makespan_ms"])
    report["throughput_ratio"] = ratio(continuous["throughput_tok_s"], static["throughput_tok_s"])
    return report


def slot_mode(requests):
    n = len(requests)
    makespan = max(r["done"] for r in requests)
    tokens = sum(r["output_len"] for r in requests)
    e2e = sorted(r["done"] - r["arrival_ms"] for r in requests)
    return {
        "makespan_ms": makespan,
        "output_tokens": tokens,
        "throughput_tok_s": ratio(1000 * tokens, makespan),
        "e2e_min_ms": e2e[0],
        "e2e_mean_ms": sum(e2e) / n,
        "e2e_p95_ms": e2e[min(n - 1, int(0.95 * n))],
        "ttft_mean_ms": sum(r["first"] - r["arrival_ms"] for r in requests) / n,
        "per_request": [
            {
                "id": r["id"],
                "start_ms": r["start"],
                "first_token_ms": r["first"],
                "done_ms": r["done"],
                "tpot_ms": (r["done"] - r["first"]) / max(1, r["output_len"] - 1),
            }
            for r in requests
        ],
    }


def ratio(a, b):
    return a / b if a is not None and b else None


# --- comparing reports


def differences(ours, theirs, where=""):
    """Name every place where two reports differ by more than their arithmetic explains.

    Times may differ by 2e-6 ms (the clock is rounded to nanoseconds), rates by a millionth.
    """
    if isinstance(theirs, dict):
        if not isinstance(ours, dict) or ours.keys() != theirs.keys():
            return [f"{where}: {ours!r} has other keys than {theirs!r}"]
        pairs = [(ours[k], theirs[k], f"{where}.{k}") for k in theirs]
    elif isinstance(theirs, list):
        if not isinstance(ours, list) or len(ours) != len(theirs):
            return [f"{where}: other lengths"]
        pairs = [(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(ours, theirs, strict=True))]
    else:
        return (
            [] if alike(ours, theirs, where.rpartition(".")[2]) else [f"{where}: {ours}, {theirs}"]
        )
    return [found for a, b, place in pairs for found in differences(a, b, place)]


def alike(ours, theirs, key):
    if not isinstance(theirs, float) or not isinstance(ours, int | float):
        return ours == theirs
    if key.startswith("throughput") or key.endswith(("_ratio", "_cv")):
        return math.isclose(ours, theirs, rel_tol=1e-6)
    return abs(ours - theirs) <= (2e-9 if key.endswith("_s") else 2e-6)
