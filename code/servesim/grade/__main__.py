"""Run the grader's command line: ``python -m servesim.grade``."""

import sys

from .cli import main

sys.exit(main())
