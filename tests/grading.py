"""What the tests of the grader share: policies of every kind, and how they are run."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INSTRUCTOR = ROOT / "instructor"

POLICY = """\
from servesim import Plan


class Policy:
    def __init__(self, slots):
        self.slots = slots

    def plan(self, view):
        {body}
        free = self.slots - len(view.running)
        batch = list(view.running) + view.waiting[:free]
        return Plan([(r.id, r.missing) for r in batch])
"""

RIGHT = POLICY.format(body="pass")


def doing(body: str) -> str:
    """Return a right policy for the warm-up that does something else first."""
    return POLICY.format(body="\n        ".join(body.splitlines()))


# What each does, and what must be in its reason.
HOSTILE = {
    "forged_result": (
        doing('print(\'{"score": 100, "refused": ""}\')'),
        "prints a result of its own",
    ),
    "forged_answer": (
        doing(
            "import os\nfor fd in range(3, 32):\n    try:\n"
            "        os.write(fd, b'{\"plan\": {}}\\n')\n    except OSError:\n        pass"
        ),
        "writes to the grader's channel",
    ),
    "exits": (doing("import os; os._exit(0)"), "ended its process, with status 0"),
    "loops": (doing("while True: pass"), "plan in step 0 took more than"),
    "loops_at_import": (RIGHT + "\n\nwhile True:\n    pass\n", "loading the file took more than"),
    "memory_bomb": (
        doing("hoard = bytearray(10**10)"),
        "took more memory than it may",
    ),
    "output_flood": (doing("while True: print('x' * 10_000)"), "printed more than"),
    "raises": (doing("{}['key']"), "raised KeyError: 'key' at raises.py, line 9"),
    "syntax_error": ("class Policy\n", "syntax error in line 1"),
    "empty": ("\n", "the file is empty"),
    "wrong_class": (RIGHT.replace("class Policy", "class Other"), "no class Policy; it has Other"),
    "no_plan": (RIGHT.replace("def plan", "def planned"), "has no method plan"),
    "patches_openly": (
        doing("import servesim.engine as engine\nengine.Engine.run = None"),
        "line 9 uses servesim.engine",
    ),
    "patches": (
        doing("name = 'servesim' + '.engine'\n__import__(name).engine.Engine.run = None"),
        "No module named 'servesim.engine'",
    ),
    "patches_what_is_there": (
        doing("import servesim\nsetattr(getattr(servesim, 'aud' + 'it'), 'check', None)"),
        "servesim.audit: a policy may use only",
    ),
    "reads_memory": (
        doing("import gc\nfound = [o for o in gc.get_objects() if hasattr(o, 'output_len')]"),
        "searches the memory of its process",
    ),
    "reads_memory_by_address": (
        doing("import ctypes\nctypes.string_at(id(view))"),
        "searches the memory of its process",
    ),
    "asks_for_lengths": (
        RIGHT.replace("    def __init__", "    knows_output_length = True\n\n    def __init__"),
        "no policy is told the output lengths",
    ),
    "asks_for_lengths_slyly": (
        RIGHT + "\n\nsetattr(Policy, 'knows_' + 'output_length', True)\n",
        "declares knows_output_length",
    ),
    "network": (
        doing("import socket\nsocket.create_connection(('192.0.2.1', 80), 1)"),
        "uses the network",
    ),
    "forks": (doing("import os\nwhile True: os.fork()"), "starts another process"),
    "starts_a_shell": (
        doing("import subprocess\nsubprocess.run(['sleep', '1000'])"),
        "starts another process",
    ),
    "reads_hidden_tests": (
        doing("try:\n    open('instructor/warmup/seed.txt').read()\nexcept OSError:\n    pass"),
        "opens the file 'instructor/warmup/seed.txt'",
    ),
    "writes": (doing("open('/tmp/owned', 'w').write('x')"), "opens the file '/tmp/owned'"),
    "kills_the_grader": (
        doing("import os, signal\nos.kill(os.getppid(), signal.SIGKILL)"),
        "interferes with its process",
    ),
    "closes_everything": (doing("import os\nos.closerange(0, 100)"), "ended its process"),
    "endless_recursion": (doing("self.plan(view)"), "RecursionError"),
    "imports_a_policy": (
        "from servesim.policies import Continuous as Policy\n",
        "a shipped policy scores 0",
    ),
    "uses_a_policy": (
        "import servesim as ss\n\n\nclass Policy(ss.policies.Continuous):\n    pass\n",
        "a shipped policy scores 0",
    ),
}


def grader(*argv: object) -> list[str]:
    """Return the command that calls the grader."""
    return [sys.executable, "-m", "servesim.grade", *map(str, argv)]
