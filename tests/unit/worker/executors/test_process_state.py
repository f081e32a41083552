"""What a handler changed in its process is found and undone."""

from __future__ import annotations

import asyncio
import gc
import io
import locale
import logging
import logging.config
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from firmq.worker.executors.process_state import ProcessState


@pytest.fixture
def make_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ProcessState]]:
    """Makes the state within the test, since pytest itself changes the environment before; undoes what is left."""
    monkeypatch.chdir(tmp_path)
    made: list[ProcessState] = []

    def make() -> ProcessState:
        made.append(ProcessState())
        return made[-1]

    yield make
    made[0].quick.restore()
    made[0].slow.restore()


def _delete_working_directory() -> None:
    os.mkdir("gone")
    os.chdir("gone")
    os.rmdir(os.getcwd())


def _change_time_zone() -> None:
    with pytest.MonkeyPatch.context() as only_here:  # Django's tests leave a TZ behind
        only_here.setenv("TZ", "Pacific/Auckland")
        time.tzset()


def _limit_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, most))


def _refuse(*limit: object) -> None:
    raise ValueError("current limit exceeds maximum limit")


ROOT_ERRORS = {"version": 1, "root": {"level": "ERROR"}, "disable_existing_loggers": False}
CHANGES: dict[str, Callable[[], object]] = {
    "signal handlers (SIGUSR1)": lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
    "the signal mask": lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}),
    "environment variables (LEFT, PATH)": lambda: os.environ.update(LEFT="behind", PATH="/nowhere"),
    "the time zone": _change_time_zone,
    "the working directory": _delete_working_directory,
    "the umask": lambda: os.umask(0o777),
    "sys.stdin, sys.stdout or sys.stderr": lambda: setattr(sys, "stdout", io.StringIO()),
    "the root logger": lambda: logging.config.dictConfig(ROOT_ERRORS),
    "the locale": lambda: locale.setlocale(locale.LC_ALL, "C.UTF-8" if locale.setlocale(locale.LC_ALL) == "C" else "C"),
    "the recursion limit": lambda: sys.setrecursionlimit(300),
    "the default timeout of sockets": lambda: socket.setdefaulttimeout(0.001),
    "garbage collection": gc.disable,
    "a profile function": lambda: sys.setprofile(lambda *about: None),
}


SLOW = ("the signal mask", "the locale")


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_named_and_undone(make_state: Callable[[], ProcessState], what: str) -> None:
    state = make_state()
    group = state.slow if what.startswith(SLOW) else state.quick
    assert group.restore() == []
    CHANGES[what]()
    [change] = group.restore()
    assert (change.description, change.undone) == (what, True)
    assert group.restore() == []


def test_a_soft_limit_is_undone(make_state: Callable[[], ProcessState]) -> None:
    state, before = make_state(), resource.getrlimit(resource.RLIMIT_NOFILE)
    _limit_files()
    assert [(each.name, each.undone) for each in state.slow.restore()] == [("resource limits", True)]
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before


def test_a_soft_limit_above_a_lowered_hard_limit_is_not_undone(
    make_state: Callable[[], ProcessState], monkeypatch: pytest.MonkeyPatch
) -> None:
    state, before = make_state(), resource.getrlimit(resource.RLIMIT_NOFILE)
    _limit_files()
    try:
        with monkeypatch.context() as patched:
            patched.setattr(resource, "setrlimit", _refuse)
            assert [(each.name, each.undone) for each in state.slow.restore()] == [("resource limits", False)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_what_cannot_be_undone_is_said(make_state: Callable[[], ProcessState], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", closed := io.StringIO())
    state = make_state()
    closed.close()
    assert [(change.description, change.undone) for change in state.quick.restore()] == [
        ("a closed standard stream", False)
    ]


def test_an_event_loop_that_a_handler_closed_is_replaced_without_a_word(
    make_state: Callable[[], ProcessState],
) -> None:
    asyncio.set_event_loop_policy(None)  # other tests in this process may have run a loop and taken it away
    state = make_state()
    policy = asyncio.get_event_loop_policy()
    asyncio.run(asyncio.sleep(0))
    with pytest.raises(RuntimeError):
        policy.get_event_loop()
    assert state.quick.restore() == []
    policy.get_event_loop().close()
    assert state.quick.restore() == []
    loop = policy.get_event_loop()
    assert not loop.is_closed()
    loop.close()
