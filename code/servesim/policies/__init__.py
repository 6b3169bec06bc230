"""Scheduling policies, one file each, in the order of the book's chapters.

`BUILT_IN` maps the name a policy has on the command line to its class.
"""

from .base import Policy
from .chunked import Chunked
from .continuous import Continuous
from .fair import Fair
from .naive import Naive
from .orca import Orca
from .prefill_first import PrefillFirst
from .priority import Priority
from .shedding import Shedding
from .shortest_first import ShortestFirst
from .static import Static
from .step_target import StepTarget
from .vllm import VLLM

BUILT_IN: dict[str, type[Policy]] = {
    "naive": Naive,
    "static": Static,
    "continuous": Continuous,
    "chunked": Chunked,
    "prefill_first": PrefillFirst,
    "orca": Orca,
    "vllm": VLLM,
    "priority": Priority,
    "shortest_first": ShortestFirst,
    "fair": Fair,
    "step_target": StepTarget,
    "shedding": Shedding,
}

__all__ = [
    "BUILT_IN",
    "VLLM",
    "Chunked",
    "Continuous",
    "Fair",
    "Naive",
    "Orca",
    "Policy",
    "PrefillFirst",
    "Priority",
    "Shedding",
    "ShortestFirst",
    "Static",
    "StepTarget",
]
