"""Hidden cases of the league: what nobody could tune for."""

import random

from servesim import KVCache
from servesim.grade import Case
from servesim.grade.assignments.league import bursts, chat, documents


def cases(seed):
    """Return each kind of workload, with another load and another cache."""
    rng = random.Random(seed)

    def kv():
        return KVCache(blocks=rng.randint(600, 800), block_size=16)

    return [
        Case("chat#1", chat(100, rng.uniform(11, 14), seed=rng.randrange(2**32)), kv=kv()),
        Case("chat#2", chat(100, rng.uniform(11, 14), seed=rng.randrange(2**32)), kv=kv()),
        Case("documents#1", documents(60, rng.uniform(6, 8), seed=rng.randrange(2**32)), kv=kv()),
        Case("documents#2", documents(60, rng.uniform(6, 8), seed=rng.randrange(2**32)), kv=kv()),
        Case("bursts#1", bursts(100, rng.uniform(11, 14), seed=rng.randrange(2**32)), kv=kv()),
        Case("bursts#2", bursts(100, rng.uniform(11, 14), seed=rng.randrange(2**32)), kv=kv()),
    ]
