"""Functions of an RQ program, which know RQ and nothing of Firmq. Imported by the program and by executors."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import time
from datetime import date
from pathlib import Path
from typing import Any

from rq import Retry, get_current_job

ALLOWED = "tests.support.rq_functions.*,_operator.add,operator.add"


class Refund(Exception):
    """An error that the program defines."""


class Order:
    def __init__(self, number: int) -> None:
        self.number = number

    def total(self, price: int) -> int:
        return self.number * price


class Cart(dict[str, int]):
    """An object that is false while it is empty."""

    def count(self) -> int:
        return sum(self.values())


CART = Cart()


def own_key(name: str | int) -> str:
    """Returns a key of the program."""
    return f"{os.environ.get('RQ_KEY_PREFIX', 'rq')}:program:{name}"


def add(a: int, b: int) -> int:
    return a + b


async def add_soon(a: int, b: int) -> int:
    await asyncio.sleep(0.01)
    return a + b


def tomorrow(day: date) -> date:
    return day.replace(day=day.day + 1)


def django_is_ready() -> bool:
    from django.apps import apps

    return apps.ready


def double(a: int) -> int:
    return a * 2


def fail(message: str = "no stock") -> None:
    raise Refund(message)


def note(key: str, text: str) -> int:
    """Writes down that it ran, through the connection of its job."""
    current = get_current_job()
    assert current is not None
    return int(current.connection.rpush(key, text))


def with_meta() -> Any:
    current: Any = get_current_job()
    current.meta["progress"] = 0.5
    current.save_meta()
    return current.id


def own_state() -> Any:
    current: Any = get_current_job()
    return [current.get_status().value, bool(current.worker_name), bool(current.started_at)]


def fail_times(key: str, times: int) -> str:
    current = get_current_job()
    assert current is not None
    if current.connection.hincrby(key, "times", 1) <= times:
        raise Refund("not yet")
    return "at last"


def try_again(key: str) -> Any:
    current = get_current_job()
    assert current is not None
    return Retry(max=2) if current.connection.hincrby(key, "times", 1) == 1 else "twice"


def try_again_always() -> Any:
    return Retry(max=1)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def sleep_and_fail(seconds: float) -> None:
    time.sleep(seconds)
    fail()


def note_slowly(key: str, seconds: float, text: str = "x") -> None:
    note(key, text)
    time.sleep(seconds)


def note_slowly_at_first(key: str) -> None:
    """For tests that end the first attempt from outside, however late they come to it."""
    redis = get_current_job().connection  # type: ignore[union-attr]
    if redis.rpush(key, "x") == 1:
        time.sleep(120)


def until_there(file: str, seconds: float = 170) -> None:
    """For tests that look at a job while it runs: it ends when they make the file. It does not look at its job."""
    end = time.monotonic() + seconds
    while not Path(file).exists() and time.monotonic() < end:
        time.sleep(0.02)


def until_there_and_fail(file: str) -> None:
    until_there(file)
    fail()


def add_slowly(a: int, b: int) -> int:
    time.sleep(0.3)
    return a + b


def described(description: str, ttl: int) -> list[object]:
    """Returns arguments whose names are also RQ's."""
    return [description, ttl]


def alone(key: str) -> int:
    """Returns how many of these jobs ran at once, this one included."""
    current = get_current_job()
    assert current is not None
    at_once = int(current.connection.incr(key))
    time.sleep(0.1)
    current.connection.decr(key)
    return at_once


def big(size: int) -> bytes:
    return b"x" * size


def no_result() -> object:
    """Returns what cannot be pickled."""
    return time.sleep.__class__, lambda: None


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_once(key: str) -> str:
    current = get_current_job()
    assert current is not None
    if current.connection.hincrby(key, "times", 1) == 1:
        kill()
    return "survived"


def parent_result() -> Any:
    current = get_current_job()
    assert current is not None
    [parent] = current.fetch_dependencies()
    return parent.return_value()


def count_dependencies() -> int:
    current = get_current_job()
    assert current is not None
    return len(current.fetch_dependencies())


def fail_after(job: Any, connection: Any, result: Any, *more: Any) -> None:
    """A callback that fails."""
    raise Refund("in the callback")


class ReprSerializer:
    """A serializer of the program."""

    @staticmethod
    def dumps(value: object) -> bytes:
        return repr(value).encode()

    @staticmethod
    def loads(data: bytes) -> object:
        return ast.literal_eval(data.decode())


def succeeded(job: Any, connection: Any, result: Any, *more: Any) -> None:
    connection.rpush(own_key(job.id), f"success {result}")


def failed(job: Any, connection: Any, kind: type[BaseException], value: BaseException, traceback: Any) -> None:
    connection.rpush(own_key(job.id), f"failure {kind.__name__} {value}")


def stopped(job: Any, connection: Any) -> None:
    connection.rpush(own_key(job.id), "stopped")
