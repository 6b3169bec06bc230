"""Scheduling policies, one file each, in the order of the book's chapters.

`BUILT_IN` maps the name a policy has on the command line to its class.
"""

from .base import Policy
from .chunked import Chunked
from .continuous import Continuous
from .naive import Naive
from .orca import Orca
from .prefill_first import PrefillFirst
from .static import Static
from .vllm import VLLM

BUILT_IN: dict[str, type[Policy]] = {
    "naive": Naive,
    "static": Static,
    "continuous": Continuous,
    "chunked": Chunked,
    "prefill_first": PrefillFirst,
    "orca": Orca,
    "vllm": VLLM,
}

__all__ = [
    "BUILT_IN",
    "VLLM",
    "Chunked",
    "Continuous",
    "Naive",
    "Orca",
    "Policy",
    "PrefillFirst",
    "Static",
]
