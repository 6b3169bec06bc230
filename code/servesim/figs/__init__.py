"""The live figures: each a function of plain numbers that runs the simulator and draws.

One file per figure, named after what its chapter is about. Standard library only, because the
same functions run in the browser. A figure depends on its arguments alone and returns a
`svg.Figure`: a picture, one sentence and the table of its numbers.
"""

from .capacity import capacity
from .chunked_prefill import chunked
from .continuous_batching import batching
from .kv_memory import kv_blocks
from .modes import four_modes
from .naive import naive_load
from .requests import arrivals
from .static_batching import static_waste
from .step_cost import roofline
from .stepper import stepper
from .validation import lower_bound
from .vllm import vllm_steps

__all__ = [
    "arrivals",
    "batching",
    "capacity",
    "chunked",
    "four_modes",
    "kv_blocks",
    "lower_bound",
    "naive_load",
    "roofline",
    "static_waste",
    "stepper",
    "vllm_steps",
]
