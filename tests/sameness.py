"""What must be the same on every machine: runs of every policy on seeded workloads, as digests.

``python tests/sameness.py`` prints them as JSON. Standard library and servesim only, because
the tests run this file in other processes and in the browser's Python as well.
"""

import hashlib
import json
import random

import servesim as ss
from servesim import cost, workload

SEEDS = range(20)
PRICES = (cost.TOY, cost.OPT_13B_A100, cost.Roofline("llama-3-8b", "h100"))
LENGTHS = ("azure_conv", "azure_code", (1, 300), 40)


def requests(seed: int) -> list[ss.Request]:
    """Return a seeded workload; arrivals and lengths come from another generator each time."""
    rng = random.Random(seed)
    rate, prompt, output = rng.uniform(0.5, 20), rng.choice(LENGTHS), (1, 60)
    made = (
        workload.gamma(25, rate, rng.uniform(0.3, 4), prompt, output, seed=seed)
        if seed % 2
        else workload.poisson(25, rate, prompt, output, seed=seed)
    )
    return [
        ss.Request(r.id, r.arrival_ns, r.prompt_len, r.output_len, r.id % 3, "ab"[r.id % 2])
        for r in made
    ]


def told(policy: str, seed: int) -> object:
    """Return all that a run tells: times of every token, metrics with their last digit, memory."""
    asked = requests(seed)
    kv = ss.KVCache(2 + max(-(-(r.prompt_len + r.output_len) // 16) for r in asked) * 2, 16)
    result = ss.simulate(
        asked,
        ss.policies.BUILT_IN[policy](),
        cost=PRICES[seed % len(PRICES)],
        kv=kv,
        never_fits="reject",
    )
    times = [(r.request.id, r.status, list(r.token_times_ns())) for r in result.records]
    return [times, result.summary(ss.SLO(ttft_ms=500, tpot_ms=50))]


def digests() -> dict[str, str]:
    """Return the digest of each run by its name."""
    return {
        f"{policy}, seed {seed}": hashlib.sha256(
            json.dumps(told(policy, seed)).encode()
        ).hexdigest()[:16]
        for policy in ss.policies.BUILT_IN
        for seed in SEEDS
    }


if __name__ == "__main__":
    print(json.dumps(digests()))
