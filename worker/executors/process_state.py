"""Process-wide state that a handler can change for later handlers, and how it is restored."""

from __future__ import annotations

import _locale  # wrapped by `locale` and `signal`: the same answers in a fraction of the time
import _signal  # type: ignore[import-not-found]
import asyncio
import faulthandler
import gc
import locale
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

_OUR_SIGNALS: list[int] = [
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGTERM,
    signal.SIGINT,
    signal.SIGHUP,
    signal.SIGALRM,
    signal.SIGCHLD,
]
_SIGNALS = [number for number in range(1, 32) if number not in (signal.SIGKILL, signal.SIGSTOP)]
_LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)


@dataclass(slots=True)
class Property:
    """A process-wide property: how it is read, and how its original value is restored, if that is worth it.

    `restore` may return which parts of it were changed. A change that is `usual` is undone without a report.
    """

    name: str
    read: Callable[[], Any]
    restore: Callable[[Any], object] = lambda original: None
    usual: bool = False
    original: Any = field(init=False)

    def __post_init__(self) -> None:
        self.original = self.read()

    def undo(self) -> tuple[str, bool]:
        """Restores the original; returns the change, and whether it is undone."""
        try:
            parts = self.restore(self.original)
            undone = bool(self.read() == self.original)
        except Exception:  # not permitted, no longer there, or an object of the handler's that cannot be compared
            return self.name, False
        return f"{self.name} ({parts})" if parts and isinstance(parts, str) else self.name, undone


@dataclass(frozen=True, slots=True)
class Change:
    """A changed property; `description` names the changed parts too."""

    name: str
    description: str
    undone: bool


class ProcessState:
    """The properties of this process as they were before the first task: some are `quick` to read, some `slow`."""

    def __init__(self) -> None:
        self.quick = Group(_quick())
        self.slow = Group(_slow())


class Group:
    """Properties that are read together."""

    def __init__(self, properties: list[Property]) -> None:
        self._properties = properties
        self._read = [each.read for each in properties]
        self._originals = [each.original for each in properties]

    def changed(self) -> dict[str, Property]:
        """Returns the properties that have changed, by name."""
        return {each.name: each for each in self._properties if not _equal(each.read(), each.original)}

    def restore(self) -> list[Change]:
        """Restores changed properties; returns the changes."""
        changes: list[Change] = []
        for _ in range(2):  # the restored value may itself be changed: a stream that was replaced, and closed before
            values = [read() for read in self._read]
            if _equal(values, self._originals):
                break
            changes += self._undo(values)
            if not all(change.undone for change in changes):
                break
        return changes

    def _undo(self, values: list[Any]) -> Iterator[Change]:
        for each, value in zip(self._properties, values, strict=True):
            if not _equal(value, each.original):
                description, undone = each.undo()
                if not (each.usual and undone):
                    yield Change(each.name, description, undone)


def _equal(value: Any, original: Any) -> bool:
    try:
        return bool(value == original)
    except Exception:  # an object of the handler's, which cannot be compared
        return False


def _quick() -> list[Property]:
    umask = os.umask(0o77)
    os.umask(umask)
    return [
        Property("an alarm", _alarm_is_set, _stop_alarms),
        # Python cannot return whether it is set.
        Property("a time-out of faulthandler", faulthandler.cancel_dump_traceback_later),
        Property("signal handlers", _handlers(_OUR_SIGNALS), partial(_restore_signals, _OUR_SIGNALS)),
        _environment(),
        Property("the time zone", lambda: time.tzname, lambda original: time.tzset()),  # by then TZ is as it was
        Property("the working directory", _working_directory, os.chdir),
        Property("the umask", partial(os.umask, umask)),  # reading it has restored it
        Property("sys.stdin, sys.stdout or sys.stderr", lambda: (sys.stdin, sys.stdout, sys.stderr), _restore_streams),
        Property("a closed standard stream", _a_stream_is_closed),
        _logging(),
        Property("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
        Property("the default timeout of sockets", socket.getdefaulttimeout, socket.setdefaulttimeout),
        Property("garbage collection", gc.isenabled, lambda original: gc.enable() if original else gc.disable()),
        Property("a trace function", sys.gettrace, sys.settrace),
        Property("a profile function", sys.getprofile, sys.setprofile),
        *_current_loop(),
    ]


def _slow() -> list[Property]:
    for number in _OUR_SIGNALS:
        faulthandler.unregister(number)
    return [
        # Reading it takes the executor's signals back, also those that a module has registered when it was imported.
        Property("signals of faulthandler", lambda: any([*map(faulthandler.unregister, _OUR_SIGNALS)])),
        Property("signal handlers", _handlers(_SIGNALS), partial(_restore_signals, _SIGNALS)),
        Property("the locale", partial(_locale.setlocale, locale.LC_ALL, None), _restore_locale),
        Property("resource limits", limits, _restore_soft_limits),
        Property("the priority", partial(os.getpriority, os.PRIO_PROCESS, 0)),
        Property("the user", lambda: (os.getuid(), os.geteuid(), os.getgid(), os.getegid())),
        *_of_threads(),
        Property("file descriptors 0 to 2", lambda: [*map(_identity, range(3))]),
    ]


def of_threads() -> Group:
    """Returns the properties that each thread has of its own, as they are now."""
    return Group(_of_threads())


def _of_threads() -> list[Property]:
    set_mask: Any = partial(signal.pthread_sigmask, signal.SIG_SETMASK)
    mask = Property("the signal mask", partial(_signal.pthread_sigmask, signal.SIG_BLOCK, ()), set_mask)
    if not hasattr(os, "sched_getaffinity"):  # outside of Linux
        return [mask]
    return [mask, Property("the processors", partial(os.sched_getaffinity, 0), partial(os.sched_setaffinity, 0))]


def _alarm_is_set() -> bool:
    return any(_signal.getitimer(each)[0] for each in _TIMERS)


def _stop_alarms(original: bool) -> None:
    for each in _TIMERS:
        signal.setitimer(each, 0)


def _handlers(numbers: list[int]) -> Callable[[], list[Any]]:
    numbers = [int(number) for number in numbers]
    return lambda: [*map(_signal.getsignal, numbers)]


def _restore_signals(numbers: list[int], original: list[Any]) -> str:
    changed = [
        (number, before)
        for number, before in zip(numbers, original, strict=True)
        if _signal.getsignal(number) is not before
    ]
    for number, before in changed:
        signal.signal(number, before)
    return ", ".join(signal.Signals(number).name for number, _ in changed)


def _environment() -> Property:
    """Returns the dictionary inside os.environ: comparing it takes half a microsecond, os.environ itself thirty."""
    variables: dict[bytes, bytes] = vars(os.environ)["_data"]
    found = Property("environment variables", lambda: variables, _restore_environment)
    found.original = dict(variables)
    return found


def _restore_environment(original: dict[bytes, bytes]) -> str:
    """Returns the names of the variables that were changed; their values may be secrets."""
    now = dict(os.environb)
    changed = sorted(name for name in now.keys() | original.keys() if now.get(name) != original.get(name))
    for name in changed:
        if name in original:
            os.environb[name] = original[name]
        else:
            del os.environb[name]
    return ", ".join(os.fsdecode(name)[:100] for name in changed[:10])


def _working_directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was deleted
        return None


def _restore_streams(original: tuple[Any, Any, Any]) -> None:
    sys.stdin, sys.stdout, sys.stderr = original


def _a_stream_is_closed() -> bool:
    try:
        return bool(sys.stdin.closed or sys.stdout.closed or sys.stderr.closed)
    except Exception:  # it was detached from its file, or is something else
        return True


def _identity(descriptor: int) -> tuple[int, int] | None:
    try:
        about = os.fstat(descriptor)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def _logging() -> Property:
    root = logging.getLogger()

    def read() -> tuple[Any, ...]:
        return root.level, root.manager.disable, root.disabled, root.handlers[:], root.filters[:]

    def restore(original: tuple[Any, ...]) -> None:
        level, disable, root.disabled, root.handlers[:], root.filters[:] = original
        root.setLevel(level)
        logging.disable(disable)

    return Property("the root logger", read, restore)


def _restore_locale(original: str) -> None:
    locale.setlocale(locale.LC_ALL, original)


def _current_loop() -> list[Property]:
    """Returns the thread's current event loop: closed, or unset as by asyncio.run."""
    local = getattr(asyncio.get_event_loop_policy(), "_local", None)
    if local is None:
        return []
    state = vars(local)

    def is_gone() -> bool:
        loop = state.get("_loop")
        return "_set_called" in state if loop is None else bool(loop.is_closed())

    return [Property("a closed event loop", is_gone, lambda original: state.clear(), usual=True)]


def _restore_soft_limits(original: list[tuple[int, int]]) -> None:
    for each, (soft, _) in zip(_LIMITS, original, strict=True):
        resource.setrlimit(each, (soft, resource.getrlimit(each)[1]))


def limits() -> list[tuple[int, int]]:
    """Returns the resource limits of this process."""
    return [*map(resource.getrlimit, _LIMITS)]
