"""Exercises to work out by hand: each a function of a seed that runs the simulator.

One file per exercise, named after what its chapter is about. Standard library only, because the
same functions run in the browser. Each returns an `Exercise`: a task with its picture, the
numbers asked for, and the run worked out. The seed makes a workload that can be done in five
minutes and is worth it; a case that teaches nothing is drawn again.
"""

from .bound import worst_moment
from .chunked_prefill import slices
from .continuous_batching import two_slots
from .exercise import Ask, Exercise, Verdict
from .kv_memory import fits
from .modes import padding
from .naive import waits
from .orders import orders
from .requests import first_tokens
from .static_batching import groups
from .step_cost import one_step
from .vllm import thrown_out

__all__ = [
    "Ask",
    "Exercise",
    "Verdict",
    "first_tokens",
    "fits",
    "groups",
    "one_step",
    "orders",
    "padding",
    "slices",
    "thrown_out",
    "two_slots",
    "waits",
    "worst_moment",
]
