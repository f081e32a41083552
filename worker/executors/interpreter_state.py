"""State of the interpreter that a handler can change for later handlers: settings, loggers, functions of modules."""

from __future__ import annotations

import _csv
import asyncio
import contextlib
import decimal
import faulthandler
import functools
import gc
import logging
import multiprocessing.context
import random
import sys
import sysconfig
import threading
import tracemalloc
import warnings
from typing import Any, cast

from firmq.worker.executors.process_state import Property

_PATCHED = (
    *("builtins", "datetime", "http.client", "json", "logging", "os", "random", "signal", "smtplib", "socket"),
    *("ssl", "subprocess", "tempfile", "threading", "time", "urllib.request", "uuid", "warnings"),
)
"""Modules whose functions are replaced now and then."""
_CACHING = ("tempfile", "urllib.request", "uuid")
"""Those that change by themselves."""
_MOST_PATCHED = 20
"""Changes above which nothing is undone: undoing all that gevent patches would break the rest."""
_HOOKS = ("unraisablehook", "displayhook", "breakpointhook", "dont_write_bytecode", "tracebacklimit")
_OF_STREAMS = ("encoding", "errors", "line_buffering", "write_through")
_NEW_LOGGER: tuple[Any, ...] = (logging.NOTSET, True, False, [], [])


def properties() -> list[Property]:
    """Returns these properties, which take some sixty microseconds to read.

    Those without a function that restores them are changed so rarely that the executor is replaced then.
    """
    start: Any = multiprocessing.context._default_context  # noqa: SLF001
    stack_size: Any = threading.stack_size
    field_size: Any = _csv.field_size_limit
    return [
        *(_module(name, vars(sys.modules[name])) for name in _PATCHED if name in sys.modules),
        Property("hooks of sys", lambda: [vars(sys).get(name) for name in _HOOKS]),
        Property("sys.meta_path", sys.meta_path.copy),
        Property("sys.excepthook", lambda: sys.excepthook, functools.partial(setattr, sys, "excepthook")),
        Property("tracing of memory", tracemalloc.is_tracing, lambda on: (tracemalloc.stop, tracemalloc.start)[on]()),
        Property("faulthandler", faulthandler.is_enabled, lambda on: (faulthandler.disable, faulthandler.enable)[on]()),
        Property("the encoding of sys.stdout or sys.stderr", _encodings, _restore_encodings),
        *(_debug_level(sys.modules[name]) for name in ("http.client",) if name in sys.modules),
        Property("the template of decimal contexts", lambda: repr(decimal.DefaultContext)),
        _list("filters of warnings", cast("list[Any]", warnings.filters)),
        _list("sys.path", sys.path),
        _list("callbacks of garbage collection", gc.callbacks),
        Property("thresholds of garbage collection", gc.get_threshold, lambda before: gc.set_threshold(*before)),
        Property("debugging of garbage collection", gc.get_debug, gc.set_debug),
        Property("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
        Property("the limit of digits", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
        Property("the stack size of threads", stack_size, stack_size),
        Property("the limit of CSV fields", field_size, field_size),
        Property("the event loop policy", asyncio.get_event_loop_policy, asyncio.set_event_loop_policy),
        Property(
            "the start method of multiprocessing",
            lambda: start._actual_context,  # noqa: SLF001  # asking for it by its function would set it
            functools.partial(setattr, start, "_actual_context"),
            usual=True,
        ),
        _loggers(logging.root.manager.loggerDict),
        _thread_locals(),
    ]


def seed_anew() -> None:
    """Seeds random numbers: a handler that seeds them must not make the tokens of the next one predictable."""
    random.seed()
    getattr(sys.modules.get("numpy.random"), "seed", int)()


def _debug_level(http_client: Any) -> Property:
    connection = http_client.HTTPConnection
    return Property(
        "the debug level of http.client",
        lambda: connection.debuglevel,
        functools.partial(setattr, connection, "debuglevel"),
    )


def _encodings() -> list[dict[str, Any]]:
    with contextlib.suppress(Exception):  # detached from its file, or something else that a handler put there
        return [{name: getattr(each, name) for name in _OF_STREAMS} for each in (sys.stdout, sys.stderr)]
    return []


def _restore_encodings(before: list[dict[str, Any]]) -> None:
    for stream, options in zip((sys.stdout, sys.stderr), before, strict=True):
        cast("Any", stream).reconfigure(**options)


def _list(name: str, items: list[Any]) -> Property:
    def restore(before: list[Any]) -> None:
        items[:] = before
        with warnings.catch_warnings():
            pass  # makes Python drop its cache of other filters

    return Property(name, items.copy, restore)


def _module(name: str, names: dict[str, Any]) -> Property:
    """Returns the functions of a module."""

    def restore(before: dict[str, Any]) -> str:
        # Submodules stay: importing them once more would not set them again.
        before.update({each: names[each] for each in names if type(names[each]) is type(sys)} | before)
        changed = [each for each in {**names, **before} if names.get(each, names) is not before.get(each, before)]
        if len(changed) <= _MOST_PATCHED:
            names.update(before)
            for each in names.keys() - before.keys():
                del names[each]
        return ", ".join(changed[:10])

    found = Property(f"a changed module {name}", lambda: names, restore, usual=name in _CACHING)
    found.original = dict(names)
    return found


def _loggers(known: dict[str, Any]) -> Property:
    """Loggers other than the root: only the few of hundreds are compared that differ from a new one."""
    placeholder = logging.PlaceHolder

    def read() -> dict[Any, tuple[Any, ...]]:
        return {
            each: (each.level, each.propagate, each.disabled, each.handlers[:], each.filters[:])
            for each in [*known.values()]
            if type(each) is not placeholder
            and (each.level or each.handlers or each.filters or each.disabled or not each.propagate)
        }

    def restore(before: dict[Any, tuple[Any, ...]]) -> None:
        for each in {*read(), *before}:
            level, each.propagate, each.disabled, each.handlers[:], each.filters[:] = before.get(each, _NEW_LOGGER)
            each.setLevel(level)

    return Property("loggers", read, restore, usual=True)


@functools.cache
def _own_thread_locals() -> list[threading.local]:
    """Returns the ones in modules that are neither Python's nor installed: libraries keep connections in theirs."""
    installed = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    own = [
        each
        for each in [*sys.modules.values()]
        if not str(getattr(each, "__file__", installed[0])).startswith(installed)
    ]
    return [value for each in own for value in vars(each).values() if issubclass(type(value), threading.local)]


def _thread_locals() -> Property:
    def restore(before: list[dict[str, Any]]) -> None:
        for each, values in zip(_own_thread_locals(), before, strict=True):
            vars(each).clear()
            vars(each).update(values)

    found = Property("thread-local values", lambda: [*map(vars, _own_thread_locals())], restore, usual=True)
    found.original = [*map(dict, found.original)]
    return found


def clear_thread_locals() -> None:
    """Removes values that earlier attempts have left in this thread."""
    for each in _own_thread_locals():
        if type(each) is threading.local:
            vars(each).clear()
