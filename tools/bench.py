"""Measure the engine's speed and memory: `make bench`.

Every comparison is a ratio within one process, the two alternating; of several rounds the
fastest counts, since other work on the machine only ever slows one down. The plain loop is
`tests/plain_loop.py`: every step and every request, one by one, and no metrics. Figures depend on
the machine, which is named; nothing is asserted.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import math
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import jupytext

import servesim as ss
from servesim import cli, cost, workload
from servesim.explore import Explorer, explore
from tests import plain_loop

ROOT = Path(__file__).parent.parent
OUT = ROOT / "chapters" / "data" / "speed.json"
AZURE = ROOT.parent / "shared" / "traces" / "AzureLLMInferenceTrace_conv.csv"
ROUNDS = 3

PRICES: dict[str, tuple[cost.Cost, plain_loop.Prices | None]] = {
    "toy": (cost.TOY, plain_loop.Prices(200_000, 40_000, 500_000)),
    # The plain loop has no price per pair of prompt tokens; it costs it no time.
    "opt-13b-a100": (
        cost.OPT_13B_A100,
        plain_loop.Prices(18_100_000, 102_000, 38_500, 1_800_000, 627),
    ),
    "roofline": (cost.Roofline(), None),
}


def seconds(run: Callable[[], Any]) -> float:
    """Return how long a call takes: of the processor's time, so that other work does not count."""
    start = time.process_time()
    run()
    return time.process_time() - start


def skipping(price: str, rate: float, blocks: int, n: int = 2_000) -> dict[str, Any]:
    """Compare skipping with stepping and with the plain loop, in one process."""
    requests = workload.poisson(n=n, rate=rate, prompt=512, output=128, seed=0)
    prices, plain = PRICES[price]
    policy, kv = ss.policies.VLLM(), ss.KVCache(blocks)
    result = ss.simulate(requests, policy, cost=prices, kv=kv)
    fast, step, slow = [], [], []
    for _ in range(ROUNDS):
        for _ in range(3):
            fast.append(seconds(lambda: ss.simulate(requests, policy, cost=prices, kv=kv)))
        step.append(seconds(lambda: ss.simulate(requests, policy, cost=prices, kv=kv, skip=False)))
        if plain is not None:
            slow.append(seconds(lambda: plain_loop.run(requests, plain, blocks)))
    took = min(fast)
    return {
        "price": price,
        "rate": rate,
        "blocks": blocks,
        "requests_per_s": round(n / took),
        "steps_per_s": round(result.steps / took),
        "steps": result.steps,
        "iterations": result.engine_iterations,
        "preemptions": result.preemptions,
        "times_stepping": round(min(step) / took, 1),
        "times_plain_loop": round(min(slow) / took, 1) if slow else None,
    }


def command(n: int = 2_000) -> dict[str, Any]:
    """Compare a whole command (workload, run, metrics, output) with stepping, in one process."""
    asked = f"run --policy vllm --cost toy --kv-blocks 4000 --workload poisson:n={n},rate=2"
    words = f"{asked},prompt=512,output=128,seed=0".split()
    requests = workload.poisson(n=n, rate=2, prompt=512, output=128, seed=0)
    policy, kv = ss.policies.VLLM(), ss.KVCache(4000)
    plain = PRICES["toy"][1]
    whole, step, slow = [], [], []
    for _ in range(ROUNDS):
        with contextlib.redirect_stdout(io.StringIO()):
            whole += [seconds(lambda: cli.main(words)) for _ in range(3)]
        step.append(
            seconds(lambda: ss.simulate(requests, policy, cost=cost.TOY, kv=kv, skip=False))
        )
        slow.append(seconds(lambda: plain_loop.run(requests, plain, 4000)))
    took = min(whole)
    return {
        "command": "servesim " + " ".join(words),
        "requests_per_s": round(n / took),
        "times_stepping": round(min(step) / took, 1),
        "times_plain_loop": round(min(slow) / took, 1),
    }


def whole_run(n: int) -> dict[str, Any]:
    """Run `n` streamed requests and all metrics; time and peak memory of this process."""
    stream = workload.Stream("poisson", n=n, rate=2, prompt=512, output=128, seed=0)
    kv = ss.KVCache(4000)

    def run() -> None:
        ss.simulate(stream, ss.policies.VLLM(), cost=cost.TOY, kv=kv).summary()

    took = seconds(run)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return {"requests": n, "seconds": round(took, 2), "peak_mb": peak}


def azure() -> dict[str, Any]:
    """Run every row of a real trace, if it is there."""
    requests = workload.load(AZURE)
    policy = ss.policies.Chunked()
    took = seconds(lambda: ss.simulate(requests, policy).summary())
    return {"requests": len(requests), "seconds": round(took, 1)}


def slider_rounds() -> dict[str, float]:
    """Return the median milliseconds of a slider's round: simulate and draw.

    The sliders of each chapter's figure step through their values one after the other, as a
    reader would move them.
    """
    rounds = {}
    for explorer in explorers():
        took = []
        for spec in (p.spec() for p in explorer.params.values()):
            for value in stops(spec):
                took.append(seconds(functools.partial(explorer.figure, **{spec["name"]: value})))
        rounds[explorer.target] = round(1000 * statistics.median(took), 1)
    return rounds


def explorers() -> Iterator[Explorer]:
    """Yield the live figures of all chapters."""
    for chapter in sorted((ROOT / "chapters").glob("*.md")):
        for cell in jupytext.read(chapter).cells:
            if cell.cell_type == "code" and cell.source.lstrip().startswith("explore("):
                yield eval(cell.source, {"explore": explore})


def stops(spec: dict[str, Any], most: int = 9) -> list[Any]:
    """Return values that a control can have, evenly spread."""
    if spec["kind"] == "choice":
        return list(spec["options"])
    count = round((spec["max"] - spec["min"]) / spec["step"])
    steps = sorted({round(i * count / (most - 1)) for i in range(most)})
    return [spec["min"] + i * spec["step"] for i in steps]


def in_new_process(task: str) -> Any:
    """Measure in a process of its own, so that peak memory is its own."""
    command = [sys.executable, "-m", "tools.bench", "--only", task]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return json.loads(done.stdout)


def machine() -> str:
    """Name the machine."""
    cpu = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        models = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = models[0].split(":")[1].strip() if models else cpu
    return f"{cpu}, CPython {platform.python_version()}, one process"


def main() -> None:
    """Measure everything and write it to `OUT`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help=argparse.SUPPRESS)
    parser.add_argument("--quick", action="store_true", help="leave out the long runs")
    args = parser.parse_args()
    if args.only:
        task, _, n = args.only.partition(":")
        print(json.dumps(whole_run(int(n)) if task == "run" else azure()))
        return
    report: dict[str, Any] = {"machine": machine(), "date": f"{date.today():%Y-%m-%d}"}
    report |= {"command": command(), "skipping": [], "growth": []}
    print(report["command"], flush=True)
    for rate, blocks in ((2.0, 4000), (20.0, 4000), (20.0, 300)):
        for price in PRICES:
            report["skipping"].append(skipping(price, rate, blocks))
            print(report["skipping"][-1], flush=True)
    for n in (10_000, 100_000) if args.quick else (10_000, 100_000, 1_000_000):
        report["growth"].append(in_new_process(f"run:{n}"))
        print(report["growth"][-1], flush=True)
    first, last = report["growth"][0], report["growth"][-1]
    more = math.log(last["requests"] / first["requests"])
    report["time_exponent"] = round(math.log(last["seconds"] / first["seconds"]) / more, 2)
    report["slider_ms"] = slider_rounds()
    print(report["slider_ms"], flush=True)
    if AZURE.exists() and not args.quick:
        report["azure"] = in_new_process("azure")
    OUT.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"{OUT.relative_to(ROOT)} written; growth of time with n: n^{report['time_exponent']}")


if __name__ == "__main__":
    main()
