"""Hidden cases of the preemption assignment: fresh draws of the public ones."""

import random

from servesim import KVCache, Request
from servesim.grade import Case
from servesim.grade.assignments.preemption import ANSWERS, STEADY, crowd, requests


def cases(seed):
    """Return other caches, other arrivals, and two giants that just fit."""
    rng = random.Random(seed)
    kv = KVCache(blocks=rng.randint(36, 48), block_size=16)
    whole = kv.blocks * kv.block_size
    giants = [Request(i, 5_000_000 * i, whole // 2 - 8, whole // 2 + 9) for i in range(2)]
    steady = requests(40, rng.uniform(4.5, 5.5), STEADY, seed=rng.randrange(2**32))
    answers = requests(24, rng.uniform(2.5, 3.5), ANSWERS, seed=rng.randrange(2**32))
    return [
        Case("giants#1", tuple(giants), kv=kv),
        Case("steady#1", steady, kv=kv),
        Case("long answers#1", answers, kv=kv),
        Case("crowd#1", crowd(rng.randint(26, 34), rng.randint(10, 18), 60), kv=kv),
    ]
