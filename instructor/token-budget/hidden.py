"""Hidden cases of the token budget: GPUs that nobody has seen, and other targets."""

import random

from servesim.cost import Affine
from servesim.grade import Case
from servesim.grade.assignments.token_budget import requests


def cases(seed):
    """Return a fast, a middling and a slow GPU, each under a load that keeps it busy."""
    rng = random.Random(seed)
    made = []
    for name, low, high in (("fast", 20, 50), ("middle", 70, 130), ("slow", 180, 300)):
        prefill_us = rng.randint(low, high)
        cost = Affine(
            base_ms=rng.randint(6, 10) + prefill_us // 15,
            prefill_us=prefill_us,
            decode_us=rng.randint(20, 60),
            context_ns=prefill_us,
        )
        target = rng.choice((60, 80) if name == "slow" else (40, 60))
        drawn = requests(50, 380 / prefill_us, seed=rng.randrange(2**32))
        made.append(Case(f"{name}#1", drawn, {"target_ms": target}, cost=cost))
    return made
