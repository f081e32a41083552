"""The mixed kinds of tasks, and how the API is asked for each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

SHARES: dict[str, float] = {
    "quick": 30,
    "slow": 3,
    "long": 0.3,
    "fail": 3,
    "give-up": 1,
    "flaky": 6,
    "crash": 0.15,
    "later": 3,
    "unique": 3,
    "dependent": 6,
    "delayed": 4,
    "dated": 3,
    "expiring": 3,
    "limited": 4,
    "batch": 1.5,
    "endless": 1,
    "overdue": 0.6,
    "stubborn": 0.3,
    "stuck": 0.08,
    "blocking": 0.08,
    "turned": 2,
    "untidy": 0.6,
    "untidy-async": 0.15,
    "old-form": 1,
    "new-form": 1,
    "old-type": 1,
    "new-type": 1,
}
"""How often each is chosen: about a third of what four executors could do, so that faults are seen and not a crowd.

A long one outlasts a lease, so what runs on where its lease has ended meets the second run.
A task that is stuck in a thread, or that crashes, costs its executor, and all that run beside it begin again.
A crash, and most of what an untidy task leaves behind, costs a new executor each time, so these are rare.
"""
BUSY = {**SHARES, "slow": 9, "long": 2, "untidy": 6, "endless": 2}
"""For short runs: whoever is frozen or killed has something in hand, and each kind of leftover is there."""
LIMIT = 1.0
"""Seconds that one attempt of these kinds may take; none ends by itself."""
OVERDUE = frozenset({"overdue", "stubborn", "stuck"})
MUST_DIE = frozenset({"fail", "give-up", "crash", *OVERDUE})
"""Kinds that belong into the dead letters; no other does, unless faults alone killed it too often."""
VERSIONED = frozenset({"old-form", "new-form", "old-type", "new-type"})
"""Kinds that only one of two versions of the application takes; a gateway may refuse them while that one is away."""
TYPES = frozenset(
    {
        "lab", "lab-waiting", "lab-thread", "lab-limited", "lab-waiting-limited", "lab-stubborn", "lab-stuck",
        "lab-blocking", "lab-untidy", "lab-untidy-async", "lab-changed", "lab-turned", "lab-old", "lab-new",
    }
)  # fmt: skip
"""Everything that the workers of the laboratory run."""
WAYS = {"lab": 4, "lab-waiting": 5, "lab-thread": 1}
"""How often each of these types is chosen for the kinds that are no type's own: most of these run beside others."""
RETRIES = {"fail": 1, "flaky": 3, "later": 3, "overdue": 1, "stubborn": 0, "stuck": 0}
MAX_CRASHES = 4
QUEUES = ("critical", "high", "normal", "low", "gpu-1", "gpu-2")
"""The configured ones, and two that the first task creates."""
LANES = tuple(lane for queue in QUEUES for lane in (queue, f"{queue}+"))
UNIQUE_KEYS = 4
ENDLESS = 25.0
"""Seconds; who submits a task of this length cancels it soon."""
FOREIGN = "foreign-"
"""Begins the ids of jobs that programs of RQ's put into these queues."""
LEFTOVERS = (
    "alarm", "mask", "handler", "output", "files", "folder", "umask", "environment", "recursion", "timeout", "loop",
    "logging", "child", "thread",
)  # fmt: skip
"""What an untidy task may leave behind: see `handlers_untidy.py`."""


def choose(dice: Random, shares: Mapping[str, float]) -> str:
    """A kind, or a type, by its share."""
    return dice.choices(list(shares), list(shares.values()))[0]


def about(kind: str, dice: Random, known: Sequence[str]) -> dict[str, Any]:
    """All of the request but the number in its data; `known` are tasks that it may depend on."""
    data: dict[str, Any] = {"kind": kind}
    body: dict[str, Any] = {"type": choose(dice, WAYS), "data": data, "queue": dice.choice(QUEUES)}
    if kind in RETRIES:
        body["max_retries"] = RETRIES[kind]
    if kind in OVERDUE:
        body["timeout"] = LIMIT
    if kind == "dependent" and known:
        body["depends_on"] = dice.sample(known, min(len(known), dice.randint(1, 3)))
    if kind in _MORE:
        more_data, more = _MORE[kind](dice)
        data |= more_data
        body |= more
    return body


def _in(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


_MORE: dict[str, Callable[[Random], tuple[dict[str, Any], dict[str, Any]]]] = {
    "slow": lambda dice: ({"seconds": round(dice.uniform(0.3, 1.5), 2)}, {}),
    "long": lambda dice: ({"seconds": round(dice.uniform(3.0, 6.0), 2)}, {}),
    "flaky": lambda dice: ({"failures": dice.randint(1, 3)}, {}),
    "unique": lambda dice: (
        {"seconds": 0.2},
        {"unique_key": f"work-{dice.randrange(UNIQUE_KEYS)}", "on_conflict": dice.choice(["refuse", "existing"])},
    ),
    "delayed": lambda dice: ({}, {"delay": round(dice.uniform(0.3, 3.0), 2)}),
    "dated": lambda dice: ({}, {"run_at": _in(dice.uniform(0.3, 3.0))}),
    "expiring": lambda dice: ({}, {"expires_in": round(dice.uniform(0.3, 3.0), 2)}),
    "limited": lambda dice: ({"seconds": 0.1}, {"type": dice.choice(["lab-limited", "lab-waiting-limited"])}),
    "endless": lambda dice: ({"seconds": ENDLESS}, {"type": dice.choice(["lab-waiting", "lab-thread"])}),
    "overdue": lambda dice: ({"seconds": 3600}, {}),
    "stubborn": lambda dice: ({}, {"type": "lab-stubborn"}),
    "stuck": lambda dice: ({}, {"type": "lab-stuck"}),
    "blocking": lambda dice: ({}, {"type": "lab-blocking"}),
    "turned": lambda dice: ({"seconds": 0.2}, {"type": "lab-turned"}),
    "untidy": lambda dice: ({"leaves": dice.choice(LEFTOVERS)}, {"type": "lab-untidy"}),
    "untidy-async": lambda dice: ({}, {"type": "lab-untidy-async"}),
    "old-form": lambda dice: ({}, {"type": "lab-changed"}),
    "new-form": lambda dice: ({"name": "new"}, {"type": "lab-changed"}),
    "old-type": lambda dice: ({}, {"type": "lab-old"}),
    "new-type": lambda dice: ({}, {"type": "lab-new"}),
}
"""What a kind has in its data, and in the request beside it."""


def batch_terms(dice: Random) -> dict[str, Any]:
    """What holds for a batch as a whole."""
    terms: dict[str, Any] = {"name": "of the laboratory"}
    if dice.random() < 0.5:
        terms["max_running"] = dice.randint(1, 4)
    return terms
