"""What all tests share."""

import os

from hypothesis import settings

# No deadline: a busy machine is not a bug. In CI the same examples every time.
settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")
