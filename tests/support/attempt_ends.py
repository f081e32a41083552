"""The ways in which an attempt can end: its outcome, and the state that its task gets."""

from __future__ import annotations

from firmq.shared.redis.rows import Value, as_rows
from firmq.shared.redis.scripts import Scripts

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


def ended(
    task_id: str | bytes, token: str, kind: str, record: str = "{}", **fields: Value | None
) -> dict[str, Value | None]:
    """Returns the end of an attempt for `report.lua`; `fields` are more of those of `EndedAttempt`."""
    outcome, state = ENDS[kind]
    delay = {"delay_us": 0} if state == "retrying" else {}
    return {"id": task_id, "token": token, "outcome": outcome, "state": state, "record": record, **delay, **fields}


def reported(*ends: dict[str, Value | None], worker: str = "w") -> tuple[Value, ...]:
    """Returns the arguments of `report.lua`."""
    return (worker, *as_rows(ends))


def report(scripts: Scripts, *ends: dict[str, Value | None], worker: str = "w") -> list[int]:
    """Reports the ends of attempts, and returns the answers."""
    answers: list[int] = scripts.call("report", *reported(*ends, worker=worker))
    return answers
