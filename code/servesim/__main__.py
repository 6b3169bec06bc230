"""Run the command line: ``python -m servesim``."""

import sys

from .cli import main

sys.exit(main())
