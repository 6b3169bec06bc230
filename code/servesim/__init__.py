"""servesim: how LLM serving is scheduled, one step at a time.

The core is pure Python and needs the standard library only; it also runs in a browser.
"""

from . import cost, kv, metrics, policies, systems, trace, workload
from .capacity import Capacity, capacity
from .compare import Comparison, compare
from .engine import Engine, simulate
from .errors import InputError, PlanError, PolicyError
from .kv import KVCache
from .metrics import SLO, SLO_PRESETS, Record, Result
from .plan import Plan, View
from .policies import Policy
from .request import Progress, Request

__version__ = "0.1.0"

__all__ = [
    "SLO",
    "SLO_PRESETS",
    "Capacity",
    "Comparison",
    "Engine",
    "InputError",
    "KVCache",
    "Plan",
    "PlanError",
    "Policy",
    "PolicyError",
    "Progress",
    "Record",
    "Request",
    "Result",
    "View",
    "capacity",
    "compare",
    "cost",
    "kv",
    "metrics",
    "policies",
    "simulate",
    "systems",
    "trace",
    "workload",
]
