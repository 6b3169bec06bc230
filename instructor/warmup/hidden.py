"""Hidden cases of the warm-up."""

import random

from servesim import workload
from servesim.grade import Case


def cases(seed):
    """Return fresh draws of the public cases."""
    rng = random.Random(seed)
    made = []
    for i in range(2):
        n, rate, slots = rng.randint(16, 24), rng.choice((8.0, 12.0)), rng.choice((3, 4))
        requests = workload.poisson(
            n=n, rate=rate, prompt="64|256", output="4-24", seed=rng.randrange(2**32)
        )
        made.append(Case(f"busy#{i + 1}", tuple(requests), {"slots": slots}))
    return made
