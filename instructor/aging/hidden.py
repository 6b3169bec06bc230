"""Hidden cases of the aging assignment: fresh draws of the public ones."""

import random

from servesim.grade import Case
from servesim.grade.assignments.aging import requests


def cases(seed):
    """Return other arrivals, priorities and numbers of slots."""
    rng = random.Random(seed)
    made = []
    for i in range(3):
        slots = rng.choice((2, 3, 4, 6))
        rate = slots * rng.uniform(1.8, 2.2)
        drawn = requests(rng.randint(40, 60), rate, (0, 0, 0, 1, 2), seed=rng.randrange(2**32))
        made.append(Case(f"flood#{i + 1}", drawn, {"slots": slots}))
    return made
