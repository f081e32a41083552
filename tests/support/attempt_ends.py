"""Attempts without a worker: the arguments of claims and reports, and the ways in which an attempt can end."""

from __future__ import annotations

from typing import Any, TypeAlias

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


End: TypeAlias = dict[str, Value | None]


def ended(task_id: str | bytes, token: str, kind: str, record: str = "{}", **fields: Value | None) -> End:
    """Returns the end of an attempt for `report.lua`; `fields` are more of those of `EndedAttempt`."""
    outcome, state = ENDS[kind]
    delay = {"delay_us": 0} if state == "retrying" else {}
    return {"id": task_id, "token": token, "outcome": outcome, "state": state, "record": record, **delay, **fields}


def reported(*ends: End, worker: str = "w") -> tuple[Value, ...]:
    """Returns the arguments of `report.lua`."""
    return (worker, *as_rows(ends))


def report(scripts: Scripts, *ends: End, worker: str = "w") -> list[int]:
    """Reports the ends of attempts, and returns the answers."""
    return [int(each) for each in scripts.call("report", *reported(*ends, worker=worker))]


def claiming(
    worker: str, token: str, lease: int, want: int, most_bytes: int, *quotas: Any, **more: Any
) -> tuple[Any, ...]:
    """Returns the arguments of `claim.lua`; `quotas` are alternating lanes and quotas, `most` is what some may give."""
    lanes, most, scores = quotas[::2], more.get("most", {}), map(str, more.get("scores", ("", "")))
    kind = more.get("kind", "+" if any(lane.endswith("+") for lane in lanes) else "")
    options = (kind, more.get("next_token", ""), more.get("patterns", ""), *scores)
    given = (
        each for name, quota in zip(lanes, quotas[1::2], strict=True) for each in (name, quota, most.get(name, ""))
    )
    return (worker, token, lease, want, most_bytes, *options, *given)
