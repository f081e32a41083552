"""The ways in which an attempt can end: its outcome, and the state that its task gets."""

from __future__ import annotations

ENDS = {
    "completed": ("completed", "completed"),
    "retrying": ("failed", "retrying"),
    "crashed": ("crashed", "retrying"),
    "failed": ("failed", "failed"),
    "poisoned": ("crashed", "failed"),
    "cancelled": ("cancelled", "cancelled"),
    "interrupted": ("interrupted", "pending"),
    "suspected": ("interrupted", "pending"),
    "suspended": ("interrupted", "scheduled"),
    "refused": ("refused", "pending"),
}
"""By a short name for each; values of `Outcome` and `TaskState`, as `report.lua` takes them."""
