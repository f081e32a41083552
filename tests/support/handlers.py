"""Task types for tests: each does one thing that a handler in the field may do."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import decimal
import faulthandler
import hashlib
import importlib
import inspect
import io
import locale
import logging
import logging.config
import multiprocessing
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from multiprocessing.pool import Pool
from pathlib import Path
from typing import Any

from firmq import GiveUp, RetryLater, TaskCancelled, current_task, execute_with_lock, lock, report_progress, task
from firmq.worker.executors.ipc import CANCEL_SIGNAL, TIME_LIMIT_SIGNAL
from firmq.worker.executors.process_tree import MARK

log = logging.getLogger(__name__)


@task("noop")
def noop(data: Any = None) -> None:
    """Does nothing."""


@task("echo")
def echo(data: Any) -> Any:
    """Gives back what it got."""
    return data


@task("note")
def note(file: str, text: str = "ran", seconds: float = 0.0) -> str:
    """Appends a line to a file when it starts, so that a test can count runs; then it takes its time."""
    with open(file, "a") as out:
        out.write(f"{current_task().id} {text}\n")
    time.sleep(seconds)
    return text


@task("digest")
def digest(file: str, must_contain: str = "") -> str:
    """The digest of a real file; fails while the file lacks something."""
    content = Path(file).read_bytes()
    if must_contain.encode() not in content:
        raise ValueError(f"{file} does not contain {must_contain!r} yet")
    return hashlib.sha256(content).hexdigest()


@task("gather")
def gather(data: Any = None) -> Any:
    """What it is told of the tasks that it waited for."""
    me = current_task()
    if me.batch:
        return {"batch": me.batch.name, "completed": me.batch.completed, "failed": me.batch.failed}
    return {each.id: each.result if each.state == "completed" else f"{each.state}: {each.error}" for each in me.parents}


@task("step")
def step(file: str, kind: str, seconds: float = 0.002) -> str:
    """One step of a larger work: writes down that it starts and that it ends, and does between what its kind says."""
    me = current_task()
    ledger = os.open(file, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(ledger, f"{me.id} start\n".encode())
        time.sleep(seconds)
        if kind == "crash" or (kind == "crash once" and me.attempt == 1):
            os._exit(9)
        if kind == "fail" or (kind == "flaky" and me.failures == 0):
            raise RuntimeError("as asked")
    finally:
        os.write(ledger, f"{me.id} end\n".encode())
        os.close(ledger)
    return kind


@task("fail")
def fail(message: str = "no luck") -> None:
    """Fails every time."""
    raise RuntimeError(message)


@task("under-lock")
def under_lock(name: str, until: str = "", wait: float = 0, at_most: float = 30) -> dict[str, Any]:
    """Holds a lock until there is a file; its fencing number, and the threads that are there afterwards."""
    with lock(name, wait=wait, at_most=at_most) as held:
        while until and not Path(until).exists():
            time.sleep(0.02)
        held.check()
        term = held.term
    return {"term": term, "threads": [each.name for each in threading.enumerate()]}


@task("skipped-if-locked")
def skipped_if_locked(name: str) -> str | None:
    """What ran under a lock; None when it was taken."""
    return execute_with_lock(name, lambda: "ran")


@task("sealed")
def sealed(customer: dict[str, str]) -> None:
    """Fails without a word of what it got."""
    raise RuntimeError(f"{len(customer)} fields are too many")


@task("flaky")
def flaky(file: str, failures: int) -> int:
    """Fails so many times, then succeeds."""
    path = Path(file)
    with path.open("a") as out:
        out.write("x")
    runs = len(path.read_text())
    if runs <= failures:
        raise ConnectionError(f"run {runs} fails")
    return runs


@task("stubborn", give_up_on=[KeyError])
def stubborn(data: str) -> None:
    """Raises an error that is declared not worth retrying, or gives up, or asks for a later try."""
    if data == "key":
        raise KeyError("no such thing")
    if data == "give up":
        raise GiveUp("it can never work")
    if data == "later" and current_task().failures == 0:
        raise RetryLater(0.3, "not yet")


@task("crash")
def crash(how: str) -> None:
    """Ends its own process in one of several ways."""
    if how == "exit":
        os._exit(3)
    if how == "exit0":
        os._exit(0)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "worker":
        os.kill(os.getppid(), signal.SIGKILL)
    if how == "stop the worker":
        os.kill(os.getppid(), signal.SIGTERM)
        time.sleep(60)
    if how == "sys.exit":
        sys.exit(1)


@task("gobble")
def gobble() -> int:
    """Eats memory until it is stopped."""
    eaten = []
    while True:
        eaten.append(bytearray(os.urandom(1 << 20)) * 16)
        time.sleep(0.005)


@task("hang", timeout=0.5)
def hang(how: str) -> None:
    """Runs past its time limit."""
    if how == "python":
        while True:
            time.sleep(0.01)
    if how == "deaf":
        while True:
            try:
                time.sleep(10)
            except BaseException:  # the point of this handler
                continue
    if how == "c":
        # crypt-like work in C that does not look at signals and keeps the GIL: a regular expression without end.
        import re

        re.match(r"(a+)+$", "a" * 40 + "b")
    if how == "child":
        import subprocess

        subprocess.run(["sleep", "60"], check=True)


@task("async")
async def asynchronous(data: float) -> str:
    """A coroutine function."""
    await asyncio.sleep(data)
    return "awaited"


class Data:
    """What a failing handler holds."""


held: list[weakref.ref[Data]] = []


def _fail_with_data() -> None:
    data = Data()
    held.append(weakref.ref(data))
    try:
        raise KeyError("first")
    except KeyError as error:
        kept = error  # refers to this frame, which refers to it
        raise ValueError("second") from kept


@task("fail-plain")
def fail_plain() -> None:
    """Fails, and tells `is-held` what it held."""
    _fail_with_data()


@task("fail-threaded", threads=True)
def fail_threaded() -> None:
    """The same in a thread."""
    _fail_with_data()


@task("fail-async")
async def fail_async() -> None:
    """The same in a coroutine."""
    await asyncio.sleep(0)
    _fail_with_data()


@task("is-held")
def is_held() -> list[bool]:
    """Whether the data of handlers that failed in its process are held by anything."""
    return [each() is not None for each in held]


@task("is-held-async")
async def is_held_async() -> list[bool]:
    """The same in the other kind of executor."""
    return is_held.__wrapped__()


@cache
def _pool() -> Pool:
    return multiprocessing.Pool(2)


@task("pooled", timeout=20)
def pooled(numbers: list[int]) -> list[int]:
    """Uses a pool of processes that this module keeps; its threads start processes that are killed again."""
    return _pool().map(abs, numbers)


@task("pooled-threaded", threads=True, timeout=20)
def pooled_threaded(numbers: list[int]) -> list[int]:
    """The same in a thread."""
    return _pool().map(abs, numbers)


@task("hang-in-thread")
async def hang_in_thread(calls: int) -> None:
    """Waits for threads that take longer than any test."""
    await asyncio.gather(*(asyncio.to_thread(time.sleep, 600) for _ in range(calls)))


@task("call-in-thread")
async def call_in_thread() -> str:
    return await asyncio.to_thread("called".lower)


@task("async-in-plain")
@task("async-in-thread", threads=True)
def asynchronous_in_plain(data: float) -> Coroutine[Any, Any, str]:
    return asynchronous(data)


@task("unending")
async def unending(how: str) -> str:
    """Leaves a coroutine behind that does not end when it is cancelled."""

    async def sleep_on() -> None:
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if how == "block":
                    time.sleep(3600)  # noqa: ASYNC251  # the point of this handler

    left = asyncio.create_task(sleep_on())
    await asyncio.sleep(0)
    return f"{left.done()}"


def _mute_signals() -> None:
    for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


def _lose_working_directory() -> None:
    folder = tempfile.mkdtemp()
    os.chdir(folder)
    os.rmdir(folder)


def _move_to_auckland() -> None:
    os.environ["TZ"] = "Pacific/Auckland"
    time.tzset()


LEAVE_BEHIND: dict[str, Callable[[], object]] = {
    "alarm": lambda: signal.setitimer(signal.ITIMER_REAL, 0.05),
    "signals": _mute_signals,
    "mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {TIME_LIMIT_SIGNAL, CANCEL_SIGNAL}),
    "cwd": _lose_working_directory,
    "umask": lambda: os.umask(0o777),
    "zone": _move_to_auckland,
    "environment": lambda: os.environ.update(PATH="/nowhere"),
    "locale": lambda: locale.setlocale(locale.LC_ALL, "POSIX"),
    "recursion": lambda: sys.setrecursionlimit(200),
    "sockets": lambda: socket.setdefaulttimeout(0.001),
    "logging": lambda: logging.config.dictConfig({"version": 1, "root": {"level": "CRITICAL"}}),
    "stdout": lambda: setattr(sys, "stdout", io.StringIO()),
    "loop": lambda: asyncio.get_event_loop().close(),
    "context": lambda: decimal.getcontext().__setattr__("prec", 3),
    "profiler": lambda: (signal.signal(signal.SIGPROF, print), signal.setitimer(signal.ITIMER_PROF, 0.01)),
    "watchdog": lambda: faulthandler.dump_traceback_later(0.05, exit=True),
    "faulthandler": lambda: faulthandler.register(TIME_LIMIT_SIGNAL, file=2),
    "warnings": lambda: warnings.simplefilter("error"),
    # These cost their executor.
    "limits": lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
    "closed stdout": lambda: sys.stdout.close(),  # noqa: PLW0108  # the one of that moment
    "no stdout": lambda: os.close(1),
    "other stderr": lambda: os.dup2(0, 2),
}


@task("leave")
def leave(what: str) -> int:
    """Leaves something behind; its process."""
    time.sleep(0.002)
    LEAVE_BEHIND[what]()
    return os.getpid()


@task("leave-a-process")
def leave_a_process() -> int:
    """Leaves a process of a session of its own, which the end of its parent's group does not reach."""
    return subprocess.Popen(["sleep", "600"], start_new_session=True).pid


@task("surroundings")
def surroundings(seconds: float = 0.0) -> list[str]:
    """Everything in its process that another handler could have changed."""
    time.sleep(seconds)
    print("printed", flush=True)
    log.warning("logged")
    warnings.warn("warned", DeprecationWarning, stacklevel=1)
    files = [f"{(about := os.fstat(number)).st_dev}:{about.st_ino}" for number in range(3)]
    root = logging.getLogger()
    found = [
        *(signal.getsignal(number) for number in (TIME_LIMIT_SIGNAL, CANCEL_SIGNAL, signal.SIGTERM)),
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
        resource.getrlimit(resource.RLIMIT_NOFILE),
        os.getcwd(),
        mask := os.umask(0),
        sorted((name, value) for name, value in os.environ.items() if name != MARK),  # each executor has its own
        time.tzname,
        locale.setlocale(locale.LC_ALL),
        sys.getrecursionlimit(),
        socket.getdefaulttimeout(),
        (root.level, len(root.handlers), log.disabled),
        files,
        decimal.getcontext().prec,
    ]
    os.umask(mask)
    asyncio.get_event_loop().run_until_complete(asyncio.sleep(0))
    return [re.sub(r" at 0x\w+", "", str(each)) for each in found]


@task("own-loop")
def own_loop(how: str) -> str:
    """Uses asyncio in a handler that is no coroutine, and leaves the current event loop closed, or none."""

    async def answer() -> str:
        return how

    if how == "run":
        return asyncio.run(answer())
    loop = asyncio.get_event_loop()
    try:
        return loop.run_until_complete(answer())
    finally:
        if how == "close":
            loop.close()


@task("import")
def import_module(name: str) -> str:
    """Imports a module that a test has made."""
    return str(importlib.import_module(name).__name__)


@task("talk")
def talk(lines: int) -> None:
    """Logs, reports progress, and fails."""
    for number in range(lines):
        log.info("line %d of %d", number + 1, lines)
    report_progress(0.4, "reading")
    raise RuntimeError("after talking")


@task("slowly")
def slowly(seconds: float) -> str:
    """Reports progress and takes its time."""
    report_progress(0.4, "reading")
    time.sleep(seconds)
    return "done"


@task("until-there")
def until_there(file: str) -> str:
    """Reports progress, and ends when a test has made the file, however late that is."""
    report_progress(0.4, "reading")
    while not Path(file).exists():
        time.sleep(0.02)
    return "done"


@task("long-at-first")
def long_at_first(seconds: float = 60.0, file: str = "") -> str:
    """Takes its time in its first attempt only, which a test ends from outside, however late it comes to do so."""
    if file:
        note(file)
    if current_task().attempt == 1:
        time.sleep(seconds)
    return "done"


@task("note-and-wait")
def note_and_wait(file: str, until: str) -> str:
    """Notes that it runs, and goes on when a test makes another file."""
    note(file)
    while not Path(until).exists():
        time.sleep(0.02)
    return "done"


@task("fork")
def fork(file: str) -> str:
    """Forks; the child leaves the handler like a program that ends, and the parent goes on for a while."""
    child = os.fork()
    if child == 0:
        sys.exit(0)
    with open(file, "a") as out:
        out.write("ran\n")
    os.waitpid(child, 0)
    time.sleep(0.3)
    return "parent"


@task("chatter")
def chatter() -> str:
    """Leaves a thread behind that logs while the next large result is sent."""

    def talk() -> None:
        for number in range(3000):
            log.info("still here %d %s", number, "x" * 200)

    threading.Thread(target=talk, daemon=True).start()
    return "y" * 900_000


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt


class _Broken(type):
    @property
    def __name__(cls) -> str:  # type: ignore[override]
        raise KeyboardInterrupt


class Nameless(Exception, metaclass=_Broken):
    pass


@task("misbehave")
def misbehave(data: str) -> Any:
    """Raises or returns what no handler should."""
    raised = {
        "cancelled": TaskCancelled("by myself"),
        "unspeakable": Unspeakable(),
        "long name": type("E" * 100_000, (Exception,), {})("x"),
        "nameless": Nameless(),
        "half": ValueError("\ud800"),
    }
    if data in raised:
        raise raised[data]
    if data == "deep":
        value: Any = None
        for _ in range(500):
            value = [value]
        return value
    if data == "close":
        os.closerange(3, 64)
    return None


@task("scribble")
def scribble(data: str, seconds: float = 60.0) -> None:
    """Writes stray bytes, given in hex, where outcomes go, as code does that mistakes a file descriptor for its own."""
    news = int(sys.argv[-2].split(",")[2])  # before the limit of open files
    os.write(news, bytes.fromhex(data))
    time.sleep(seconds)


def live(file: str, attempt: int, kind: str, seconds: float = 600.0) -> None:
    """Writes down again and again that this process lives."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        with open(file, "a") as out:
            out.write(f"{attempt} {kind} {os.getpid()} {time.monotonic()}\n")
        time.sleep(0.02)


BROOD = ("fork", "popen", "pool", "daemon")


@task("brood")
def brood(file: str, seconds: float = 600.0) -> None:
    """Starts processes in every way that handlers do; each writes down that it lives, until it is ended."""
    attempt = current_task().attempt
    if attempt > 1:
        live(file, attempt, "self", 0.01)
        return
    for kind in BROOD:
        _start_child(kind, file)
    live(file, attempt, "self", seconds)


def _start_child(kind: str, file: str) -> None:
    if kind == "popen":
        code = f"import os, time\n{inspect.getsource(live)}\nlive({file!r}, 1, 'popen')"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    elif kind == "pool":
        pool = multiprocessing.get_context("fork").Pool(1)
        pool.apply_async(live, (file, 1, "pool"))
        _pools.append(pool)
    elif os.fork() == 0:
        if kind == "daemon":
            os.setsid()
            if os.fork():
                os._exit(0)
        live(file, 1, kind)
        os._exit(0)


@task("hang-up-a-child")
def hang_up_a_child() -> int:
    """Gives the signal by which a forked process ended."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writer, b"x")  # from here on it sees signals: those that come while it is forked are dropped
        time.sleep(60)
        os._exit(0)
    os.read(reader, 1)
    os.kill(pid, signal.SIGHUP)
    return os.WTERMSIG(os.waitpid(pid, 0)[1])


@task("hoard")
def hoard(own: int, each: int, children: int, seconds: float = 60.0) -> str:
    """Holds so many bytes itself, and in each of so many children, which share the first with it."""
    kept = os.urandom(own)
    pids = []
    for _ in range(children):
        if pid := os.fork():
            pids.append(pid)
        else:
            also = os.urandom(each)
            time.sleep(seconds)
            os._exit(len(also) % 2)
    time.sleep(seconds)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return f"{len(kept)} bytes"


_pools: list[Any] = []


@task("linger")
def linger() -> None:
    """Leaves a thread behind that does not end."""
    threading.Thread(target=time.sleep, args=(3600,)).start()


@task("odd_result")
def odd_result(data: str) -> Any:
    """Returns what has no JSON form."""
    return {
        "object": object(),
        "nan": float("nan"),
        "large": "x" * 2_000_000,
        "half": "\ud800",
        "half key": {"\ud800": 1},
    }[data]


@task("own-spans")
def own_spans() -> None:
    """Makes spans by itself, also in a thread."""
    from opentelemetry import trace

    tracer = trace.get_tracer("shop")
    with tracer.start_as_current_span("render", attributes={"page": 3}) as span:
        span.add_event("half of it", {"done": 0.5})
        thread = threading.Thread(target=lambda: tracer.start_span("print").end())
        thread.start()
        thread.join()


@task("calls")
def calls(url: str, redis_url: str, key: str) -> None:
    """Calls a neighbour by each of the usual clients, and asks Redis for something."""
    import urllib.request

    import httpx
    import requests
    from redis import Redis

    requests.get(url, timeout=5)
    urllib.request.urlopen(url, timeout=5).close()
    httpx.get(url, timeout=5)
    with Redis.from_url(redis_url) as redis:
        redis.strlen(key)


@task("measured")
def measured(name: str, seconds: float = 0.02) -> None:
    """Tells how many of its kind run at this moment, and when it started."""
    from firmq.shared.redis.client import connect, keys_of

    me = f"{os.getppid()}:{os.getpid()}:{current_task().id}"
    with connect(os.environ["REDIS_URL"]) as redis:
        measures = f"{keys_of(redis).prefix}firmq:measured:{name}"
        now, us = redis.time()
        pipeline = redis.pipeline(transaction=True)
        pipeline.sadd(f"{measures}:now", me)
        pipeline.scard(f"{measures}:now")
        _, running = pipeline.execute()
        redis.rpush(f"{measures}:counts", running)
        redis.rpush(f"{measures}:starts", now + us / 1_000_000)
        time.sleep(seconds)
        redis.srem(f"{measures}:now", me)


@task("mutter")
def mutter() -> None:
    """Logs from a thread of its own."""
    thread = threading.Thread(target=log.info, args=("from a thread",))
    thread.start()
    thread.join()


@task("stray")
def stray(secret: str) -> str:
    """Leaves a thread behind that logs, reports progress, starts more threads and asks which task it works for."""

    def run(depth: int) -> None:
        for _ in range(20):
            log.warning("%s from depth %d", secret, depth)
            report_progress(0.99, secret)
            with contextlib.suppress(RuntimeError):
                log.warning("%s thinks it is task %s", secret, current_task().id)
            time.sleep(0.02)
        threading.Thread(target=run, args=(depth + 1,), daemon=True).start()

    threading.Thread(target=run, args=(0,), daemon=True).start()
    return secret


_POOL = ThreadPoolExecutor(1)


@task("helped")
def helped(words: str, seconds: float = 0.0) -> list[str]:
    """Has threads of its own, and one of a pool that all tasks share, log and ask for the current task."""
    found: list[str] = []

    def help_out(how: str) -> None:
        log.warning("%s by %s", words, how)
        found.append(current_task().id)

    thread = threading.Thread(target=help_out, args=("thread",))
    thread.start()
    thread.join()
    _POOL.submit(help_out, "pool").result()
    time.sleep(seconds)
    return found
