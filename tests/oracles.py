"""The two published toy programs once more, written in floats straight from their description.

Nothing here imports the simulator: a mistake would have to be made twice to stay unseen.
Times are in seconds for system A and in milliseconds for system B, as in their reports.
"""

import itertools
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


# --- the exercises, worked out from their tables (rows of numbers, in the order of the columns)


def work_out_first_tokens(rows, step=10, piece=4):
    left = [prompt for _, prompt, _ in rows]
    tokens = [[] for _ in rows]
    clock = 0
    while any(len(t) < output for t, (_, _, output) in zip(tokens, rows, strict=True)):
        there = [i for i, (arrival, _, _) in enumerate(rows) if arrival <= clock]
        there = [i for i in there if len(tokens[i]) < rows[i][2]]
        if not there:
            clock = min(arrival for arrival, _, _ in rows if arrival > clock)
            continue
        clock += step
        for i in there:
            left[i] = max(0, left[i] - piece)
            if not left[i]:
                tokens[i].append(clock)
    first, last = tokens[1][0] - rows[1][0], tokens[2]
    return first, last[0] - rows[2][0], last[-1] - rows[2][0]


def work_out_waits(rows, step=10):
    waits = [0]
    for (before, output), (arrival, _) in itertools.pairwise(rows):
        waits.append(max(0, waits[-1] + step * output - (arrival - before)))
    return waits[2], waits[4], sum(waits) / len(waits)


def work_out_groups(rows, step=10):
    (a0, o0), (a1, o1), (_, o2), (a3, o3) = rows
    second = max(a3, a1 + step * max(o0, o1))
    return a1 + step - a0, second + step - a3, abs(o0 - o1) + abs(o2 - o3)


def work_out_two_slots(rows, step=10):
    (_, o0), (_, o1), (_, o2), (_, o3) = rows
    queue, slots, clock, steps = list(range(len(rows))), {}, 0, 0
    while queue or slots:
        while len(slots) < 2 and queue and rows[queue[0]][0] <= clock:
            i = queue.pop(0)
            slots[i] = rows[i][1]
            if i == 3:
                ttft = clock + step - rows[3][0]
        if slots:
            clock, steps = clock + step, steps + 1
            slots = {i: n - 1 for i, n in slots.items() if n > 1}
        else:
            clock = rows[queue[0]][0]
    return max(o0, o1) + max(o2, o3), steps, ttft


def work_out_slices(rows, budget=16):
    def tokens(most):
        left = [prompt for _, prompt, _ in rows]
        times = [[] for _ in rows]
        clock = 0
        while any(len(t) < output for t, (_, _, output) in zip(times, rows, strict=True)):
            there = [
                i
                for i, (arrival, _, output) in enumerate(rows)
                if arrival <= clock and len(times[i]) < output
            ]
            if not there:
                clock = min(arrival for arrival, _, _ in rows if arrival > clock)
                continue
            decoding = [i for i in there if not left[i]]
            spare, read = most - len(decoding), 0
            reading = []
            for i in there:
                if left[i] and spare:
                    part = min(left[i], spare)
                    left[i] -= part
                    spare -= part
                    read += part
                    reading.append(i)
            clock += 10 + read
            for i in decoding + [i for i in reading if not left[i]]:
                times[i].append(clock)
        return times

    whole, sliced = tokens(math.inf), tokens(budget)
    gaps = [max(b - a for a, b in itertools.pairwise(t[0])) for t in (whole, sliced)]
    return *gaps, sliced[2][0] - rows[2][0]


def work_out_worst_moment(rows, step=10):
    ends = []
    for i, (arrival, *_) in enumerate(rows):
        _, prompts, outputs = zip(*rows[i:], strict=True)
        ends.append(arrival + sum(prompts) + step * max(outputs))
    return ends[3], ends[1], max(ends)


def work_out_orders(rows, step=10):
    outputs = [output for (output,) in rows]

    def mean(order):
        return step * sum(itertools.accumulate(order)) / len(order)

    half = sum(outputs) // 2
    before_b = sum(n for n in outputs[:3] if n <= outputs[3])
    b = min(outputs[3], max(0, half - before_b))
    a = half - b
    return mean(outputs), mean(sorted(outputs)), half**2 / (2 * (a**2 + b**2))


def work_out_fits(rows, blocks=8, size=4):
    ends = [math.ceil((prompt + output - 1) / size) for prompt, output in rows]
    begins = [math.ceil(prompt / size) for prompt, _ in rows]

    def until_full(needs):
        return sum(sum(needs[: i + 1]) <= blocks for i in range(len(needs)))

    # A piece of 2^k blocks begins at a multiple of 2^k; the smallest that is free and fits is cut.
    free, got = [(blocks, 0)], 0
    for need in ends:
        piece = 2 ** math.ceil(math.log2(need))
        fitting = sorted(f for f in free if f[0] >= piece)
        if not fitting:
            break
        large, start = fitting[0]
        free.remove((large, start))
        while large > piece:
            large //= 2
            free.append((large, start + large))
        got += 1
    return until_full(ends), got, until_full(begins)


def work_out_padding(rows, call=0.2, token=0.04):
    lengths = [prompt for (prompt,) in rows]
    charged = max(lengths), len(lengths) * max(lengths), sum(lengths)
    return [call + token * n for n in charged]


def work_out_one_step(rows):
    *contexts, prompt = [tokens for (tokens,) in rows]
    weights, flop_s, byte_s = 13e9, 312e12, 2.039e12  # OPT-13B; A100's data sheet
    kv_bytes = 2 * 40 * 40 * 128 * 2

    def longer(contexts, tokens):
        memory = (2 * weights + kv_bytes * sum(contexts)) / byte_s
        return 1000 * max(memory, 2 * weights * tokens / flop_s)

    decodes = len(contexts)
    return longer(contexts, decodes + prompt), longer(contexts, decodes), longer([], prompt)


def work_out_thrown_out(rows, blocks=14, budget=8):
    queue = [{"id": i, "todo": p, "made": 0, "has": 0, "out": o} for i, (p, o) in enumerate(rows)]
    running, step, first = [], 0, None
    while queue or running:
        left, gone, i = budget, False, 0
        done = []
        while i < len(running) and left:
            r = running[i]
            tokens = min(r["todo"], left)
            while tokens > blocks:
                victim = running.pop()
                gone = True
                first = first or (step, victim["has"])
                blocks += victim["has"]
                victim["todo"], victim["has"] = victim["todo"] + victim["has"], 0
                queue.insert(0, victim)
                if victim is r:
                    break
            else:
                blocks -= tokens
                left -= tokens
                r["todo"] -= tokens
                r["has"] += tokens
                done.append(r)
                i += 1
        while not gone and queue and left and queue[0]["todo"] <= blocks:
            r = queue.pop(0)
            tokens = min(r["todo"], left)
            blocks -= tokens
            left -= tokens
            r["todo"] -= tokens
            r["has"] += tokens
            running.append(r)
            done.append(r)
        for r in done:
            if not r["todo"]:
                r["made"] += 1
                r["todo"] = 1
        for r in [r for r in running if r["made"] == r["out"]]:
            running.remove(r)
            blocks += r["has"]
        step += 1
    return *first, step
