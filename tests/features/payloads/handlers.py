"""Task types of each kind of executor, with data and results of any size."""

from __future__ import annotations

from typing import Any

from firmq import task


@task("echo-in-loop")
async def echo_in_loop(data: Any) -> Any:
    """Gives back what it got."""
    return data


@task("echo-in-thread", threads=True)
def echo_in_thread(data: Any) -> Any:
    """Gives back what it got."""
    return data


@task("enlarge")
def enlarge(data: str) -> str:
    """A large result."""
    return data * 5000


@task("enlarge-in-loop")
async def enlarge_in_loop(data: str) -> str:
    """A large result."""
    return data * 5000
