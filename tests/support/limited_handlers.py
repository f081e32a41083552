"""A handler with a limit of its own, for workers that are started with this module alone."""

from __future__ import annotations

from firmq import task


@task("two-at-once", concurrency=2, rate="50/s", burst=10)
def two_at_once(data: object) -> object:
    """Returns what it was given."""
    return data
