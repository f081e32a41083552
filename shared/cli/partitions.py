"""`taskqueue partitions`: lists the partitions of the system, drains one, and activates it.

A draining partition stores no new tasks but those that belong to what it holds; see docs/deploy/scaling.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redis.exceptions import RedisError

from taskqueue.shared.cli.output import Output
from taskqueue.shared.config.redis_address import without_password
from taskqueue.shared.config.settings import load_or_exit
from taskqueue.shared.domain.task import TaskState
from taskqueue.shared.errors import StoreUnavailable
from taskqueue.shared.redis.client import connect, keys_of, translated
from taskqueue.shared.redis.schema_version import is_draining
from taskqueue.shared.redis.scripts import Scripts

if TYPE_CHECKING:
    from redis import Redis

    from taskqueue.shared.config.settings import Settings

DONE, USAGE, REFUSED, UNAVAILABLE, INTERRUPTED = 0, 2, 3, 5, 130
LOOK_EVERY = 1.0
"""Seconds between two looks of `--wait`."""
_COLUMNS = {
    "number": "PARTITION",
    "address": "ADDRESS",
    "state": "STATE",
    "open_tasks": "OPEN TASKS",
    "dead_letters": "DEAD LETTERS",
    "stored_tasks": "STORED TASKS",
    "schedules": "SCHEDULES",
}
_ONE_SERVER = (
    "this system has one Redis server, {address}: name several in REDIS_PARTITIONS, or use a cluster "
    "(redis+cluster://HOST:PORT?partitions=24); see docs/deploy/scaling.md"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition, as the command shows it. Open tasks are all that have not ended."""

    number: int
    address: str
    state: Literal["active", "draining", "away"]
    open_tasks: int | None = None
    dead_letters: int | None = None
    stored_tasks: int | None = None
    schedules: int | None = None


def main(action: str, number: int | None, wait: bool, as_json: bool) -> int:
    """Runs the command: `action` is list, drain or activate. Returns its exit status."""
    command = _Command(load_or_exit(), Output(sys.stdout, as_json=as_json))
    try:
        return command.run(action, number, wait)
    except StoreUnavailable as error:
        return _fail(f"partition {number}: {error}", UNAVAILABLE)
    except KeyboardInterrupt:
        return INTERRUPTED


class _Command:
    def __init__(self, settings: Settings, out: Output, sleep: Callable[[float], None] = time.sleep) -> None:
        self.settings = settings
        self.out = out
        self.sleep = sleep
        self.clients = {
            number: connect(own.store_url, timeout=2.0, name="partitions")
            for number, own in settings.partitions.items()
        }

    def run(self, action: str, number: int | None, wait: bool) -> int:
        if not self.settings.is_partitioned:
            return _fail(_ONE_SERVER.format(address=without_password(self.settings.store_url)), REFUSED)
        if action == "list" or number is None:
            self.out.table(_COLUMNS, map(self.look, self.clients))
            return DONE
        if number not in self.clients:
            there = ", ".join(map(str, self.clients))
            return _fail(f"there is no partition {number}: REDIS_PARTITIONS or REDIS_URL has {there}", USAGE)
        return self.activate(number) if action == "activate" else self.drain(number, wait)

    def look(self, number: int) -> Partition:
        """Returns the state of a partition."""
        redis, address = self.clients[number], without_password(self.settings.partitions[number].store_url)
        try:
            return Partition(number=number, address=address, **_look(redis))
        except (RedisError, OSError):
            return Partition(number=number, address=address, state="away")

    def drain(self, number: int, wait: bool) -> int:
        others = [self.look(each).state for each in self.clients if each != number]
        if "active" not in others:
            return _fail(
                f"partition {number} is the last one that takes new tasks: activate another one first, or add one",
                REFUSED,
            )
        set_state(self.clients[number], "draining")
        now = self.look(number)
        if self.out.as_json and not wait:
            self.out.value(now)
        self.out.line(f"partition {number} is draining: new tasks go to the others, its own run to their end")
        if not wait:
            for line in self._next(now):
                self.out.line(line)
        return self._wait(number) if wait else DONE

    def activate(self, number: int) -> int:
        changed = set_state(self.clients[number], "active")
        if self.out.as_json:
            self.out.value(self.look(number))
        self.out.line(f"partition {number} {'takes new tasks' if changed else 'was not draining: nothing was changed'}")
        return DONE

    def _wait(self, number: int) -> int:
        """Waits until a partition has no open task, and prints how many there are."""
        before = None
        while (now := self.look(number)).open_tasks != 0:
            if now != before:
                self.out.value(now) if self.out.as_json else self.out.line(_progress(now))
            before = now
            self.sleep(LOOK_EVERY)
        if self.out.as_json:
            self.out.value(now)
        for line in self._next(now):
            self.out.line(line)
        return DONE

    def _next(self, now: Partition) -> list[str]:
        """Returns what to do next, a line each."""
        number = now.number
        if not now.stored_tasks and self._is_new(number):
            deploy = "If it is a new one: deploy this REDIS_PARTITIONS to all parts, then"
            return [f"{deploy}: taskqueue partitions activate {number}"]
        wait = (
            [f"wait until it has no open tasks: taskqueue partitions drain {number} --wait"] if now.open_tasks else []
        )
        if not self.settings.redis_partitions:
            return [f"A partition of a cluster is not removed. To use it again: taskqueue partitions activate {number}"]
        addresses = [without_password(url) if url else "" for url in self.settings.redis_partitions]
        addresses[number] = ""
        if now.dead_letters:
            wait.append(f"retry or delete its {now.dead_letters} dead letters: they are gone with it")
        if now.schedules:
            wait.append(
                f"delete its {now.schedules} schedules and create them again, except those of CONFIG_FILE: "
                "taskqueue schedules"
            )
        steps = [
            *wait,
            f"leave its place empty, with your passwords and options: REDIS_PARTITIONS={','.join(addresses)}",
            "restart all parts with it; from then on the ids of its tasks are unknown",
        ]
        return ["To remove it:", *(f"  {at}. {step}" for at, step in enumerate(steps, start=1))]

    def _is_new(self, number: int) -> bool:
        """Returns whether no worker of the system has used it yet."""
        redis = self.clients[number]
        with translated():
            return not redis.exists(keys_of(redis).WORKERS_STARTED)


def set_state(redis: Redis, state: Literal["active", "draining"]) -> bool:
    """Sets whether a partition is draining. Returns whether that changed it. Raises StoreUnavailable."""
    with translated():
        return bool(Scripts(redis).call("partition_set", state))


def _look(redis: Redis) -> dict[str, Any]:
    keys = keys_of(redis)
    ended = [state for state in TaskState if state.ended]
    with redis.pipeline() as pipeline:
        pipeline.get(keys.FORMAT)
        pipeline.zcard(keys.TASKS)
        pipeline.zcard(keys.SCHEDULES)
        for state in ended:
            pipeline.zcard(keys.ended(state.value))
        data_format, stored, schedules, *counts = pipeline.execute()
    return {
        "state": "draining" if is_draining(data_format) else "active",
        "open_tasks": max(0, stored - sum(counts)),
        "dead_letters": counts[ended.index(TaskState.FAILED)],
        "stored_tasks": stored,
        "schedules": schedules,
    }


def _progress(now: Partition) -> str:
    if now.open_tasks is None:
        return f"partition {now.number} does not answer"
    return f"partition {now.number}: {now.open_tasks} open tasks"


def _fail(text: str, status: int) -> int:
    print(f"taskqueue: {text}", file=sys.stderr)
    return status
