"""`firmq partitions`: lists the partitions of the system, drains one, and activates it.

A draining partition stores only tasks that belong to data that it holds; see docs/deploy/scaling.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from redis.exceptions import RedisError

from firmq.shared.cli.output import Output, columns
from firmq.shared.config.redis_address import without_password
from firmq.shared.config.settings import load_or_exit
from firmq.shared.domain.task import TaskState
from firmq.shared.errors import StoreUnavailable
from firmq.shared.redis.client import connect, keys_of, translated
from firmq.shared.redis.scripts import Scripts

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings

DONE, USAGE, REFUSED, UNAVAILABLE, INTERRUPTED = 0, 2, 3, 5, 130
LOOK_EVERY = 1.0
"""Seconds between two looks of `--wait`."""
_COLUMNS = columns("number PARTITION, address, state, open_tasks, dead_letters, stored_tasks, schedules")
_ONE_SERVER = (
    "this system has a single Redis server, {address}: set REDIS_PARTITIONS to several addresses, or use a cluster "
    "(redis+cluster://HOST:PORT?partitions=24); see docs/deploy/scaling.md"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Partition:
    """A partition, as the command shows it. Open tasks are all that have not ended."""

    number: int
    address: str
    state: Literal["active", "draining", "unavailable"]
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
            number: connect(own.store_url, timeout=2.0, name="partitions") for number, own in settings.stores.items()
        }

    def run(self, action: str, number: int | None, wait: bool) -> int:
        if self.settings.has_one_address:
            return _fail(_ONE_SERVER.format(address=without_password(self.settings.store_url)), REFUSED)
        if action == "list" or number is None:
            self.out.table(_COLUMNS, map(self.look, self.clients))
            return DONE
        if number not in self.clients:
            there = ", ".join(map(str, self.clients))
            how = "add it to REDIS_PARTITIONS (on a cluster, raise partitions in REDIS_URL)"
            return _fail(f"no partition {number}: choose one of {there}, or {how}", USAGE)
        return self.activate(number) if action == "activate" else self.drain(number, wait)

    def look(self, number: int) -> Partition:
        """Returns the state of a partition."""
        redis, address = self.clients[number], without_password(self.settings.stores[number].store_url)
        try:
            return Partition(number=number, address=address, **_look(redis))
        except (RedisError, OSError):
            return Partition(number=number, address=address, state="unavailable")

    def drain(self, number: int, wait: bool) -> int:
        others = [self.look(each).state for each in self.clients if each != number]
        if "active" not in others:
            return _fail(
                f"partition {number} is the last active partition: activate another one or add one first",
                REFUSED,
            )
        self.set_state(number, "draining")
        now = self.look(number)
        if self.out.as_json and not wait:
            self.out.value(now)
        self.out.line(
            f"partition {number} is draining: new tasks go to the other partitions; the tasks in it still run"
        )
        self.out.line("docs/deploy/scaling.md has the steps to add it, or to remove it")
        return self._wait(number) if wait else DONE

    def activate(self, number: int) -> int:
        changed = self.set_state(number, "active")
        if self.out.as_json:
            self.out.value(self.look(number))
        self.out.line(f"partition {number} {'is active: it takes new tasks' if changed else 'is already active'}")
        return DONE

    def set_state(self, number: int, state: Literal["active", "draining"]) -> bool:
        """Sets the state of a partition. Returns whether that changed it. Raises StoreUnavailable."""
        return set_state(self.clients[number], state, confirm_writes=self.settings.confirm_writes)

    def _wait(self, number: int) -> int:
        """Waits until a partition has no open task, and prints how many there are."""
        before = None
        while (now := self.look(number)).open_tasks != 0:
            if now != before:
                self.out.either(now, _progress(now))
            before = now
            self.sleep(LOOK_EVERY)
        if self.out.as_json:
            self.out.value(now)
        self.out.line(f"partition {number} has no open tasks")
        return DONE


def set_state(redis: Redis, state: Literal["active", "draining"], *, confirm_writes: bool = False) -> bool:
    """Sets whether a partition is draining. Returns whether that changed it. Raises StoreUnavailable.

    With `confirm_writes` the append-only file has the state then: tasks are stored elsewhere in reliance on it.
    """
    with translated():
        return bool(Scripts(redis, confirm_writes=confirm_writes).call_answered("draining_set", state))


def _look(redis: Redis) -> dict[str, Any]:
    keys = keys_of(redis)
    ended = [state for state in TaskState if state.ended]
    with redis.pipeline() as pipeline:
        pipeline.exists(keys.DRAINING)
        pipeline.zcard(keys.TASKS)
        pipeline.zcard(keys.SCHEDULES)
        for state in ended:
            pipeline.zcard(keys.ended(state.value))
        draining, stored, schedules, *counts = pipeline.execute()
    return {
        "state": "draining" if draining else "active",
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
    print(f"firmq: {text}", file=sys.stderr)
    return status
