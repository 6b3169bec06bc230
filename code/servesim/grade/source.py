"""What a student's file may hold, seen without running it."""

from __future__ import annotations

ALLOWED = ("Plan", "View", "Progress")
"""Names that a policy may import from servesim."""
