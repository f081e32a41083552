"""A store with very many tasks, made by the scripts that the parts use, so that its records are real ones."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from itertools import count

from firmq.shared.domain import failure_fingerprint
from firmq.shared.domain.task import NewTask, new_task_id
from tests.support.attempt_ends import claiming, ended, report
from tests.support.harness import WEIGHTS, System
from tests.support.keys import keys

FAILURE_GROUPS = 40
CHUNK = 500
_TYPES = [f"kind-{n}" for n in range(4)]
COMPLETED = '{"worker":"digger","outcome":"completed"}'
_TRACE = "Traceback (most recent call last):\n" + '  File "shop.py", line 7, in pay\n    raise error\n' * 5


def crowd(system: System, tasks: int) -> None:
    """So many tasks: a tenth are dead letters of forty causes, six tenths completed, the others wait in all queues."""
    worked = tasks * 7 // 10
    numbers, failures = count(), Counter[bytes]()
    for at in range(0, worked, CHUNK):
        system.queues.submit([_task() for _ in range(min(CHUNK, worked - at))])
        _work(system, numbers, failures)
    queues = list(WEIGHTS)
    for at in range(0, tasks - worked, CHUNK):
        late = timedelta(hours=1) if at // CHUNK % 5 == 4 else None
        most = min(CHUNK, tasks - worked - at)
        system.queues.submit([_task(queues[n % len(queues)], late) for n in range(most)])


def _task(queue: str = "normal", delay: timedelta | None = None) -> NewTask:
    task_id = new_task_id()
    kind = _TYPES[int(task_id[-1], 36) % len(_TYPES)]
    data = '{"order": 4711, "customer": "ann", "items": ["tea", "milk"]}'
    return NewTask(id=task_id, type=kind, data=data, queue=queue, delay=delay, tags=("eu",))


def _work(system: System, numbers: Iterable[int], failures: Counter[bytes]) -> None:
    token = new_task_id()
    held = system.scripts.call("claim", *claiming("digger", token, 60_000_000, CHUNK, 1 << 24, "normal", CHUNK))[3]
    ends = []
    for task, number in zip(held, numbers, strict=False):
        if number % 7 == 0:
            # Counted by type, which is drawn by chance: so each type fails in each place.
            ends.append(ended(task[0], token, "failed", **_failed(failures[task[2]])))
            failures[task[2]] += 1
        else:
            ends.append(ended(task[0], token, "completed", COMPLETED, result="eyJwYWlkIjogdHJ1ZX0="))
    report(system.scripts, *ends, worker="digger")
    system.redis.delete(keys.claim("digger"))


def _failed(number: int) -> dict[str, str]:
    message = f"order {number} of {new_task_id()} cannot be paid"
    about = {
        "type": "PaymentError",
        "message": message,
        "place": f"shop.pay_{number % (FAILURE_GROUPS // len(_TYPES))}",
        "pattern": failure_fingerprint.pattern(message),
    }
    record = {"worker": "digger", "outcome": "failed", "error": {**about, "traceback": _TRACE}}
    return {"record": json.dumps(record), "error": json.dumps(about), "traceback": "eJwrSS0uAQAEXQHB"}
