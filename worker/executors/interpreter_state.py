"""State of the interpreter that a handler can change for later handlers: settings, loggers, functions of modules."""

from __future__ import annotations

import _csv
import asyncio
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
from collections.abc import Callable
from contextvars import copy_context
from operator import attrgetter
from typing import Any, cast

from taskqueue.worker.executors.process_state import Property

_PATCHED = (
    *(
        "builtins",
        "datetime",
        "http.client",
        "json",
        "os",
        "random",
        "signal",
        "smtplib",
        "socket",
        "ssl",
        "subprocess",
    ),
    *("tempfile", "threading", "time", "urllib.request", "uuid", "warnings"),
)
"""Modules whose functions are replaced now and then."""
_CACHING = ("tempfile", "urllib.request", "uuid")
"""Those that change by themselves."""
_MOST_PATCHED = 20
"""Changes above which the executor is replaced: undoing all that gevent patches would break the rest."""
_HOOKS = ("excepthook", "unraisablehook", "displayhook", "breakpointhook", "dont_write_bytecode", "tracebacklimit")
_LOGGER = attrgetter("level", "propagate", "disabled", "handlers", "filters")
_NEW_LOGGER: tuple[Any, ...] = (logging.NOTSET, True, False, [], [])
_CONTEXT = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps")


def properties() -> list[Property]:
    """Returns these properties, which take some sixty microseconds to read."""
    start: Any = multiprocessing.context._default_context  # noqa: SLF001
    stack_size: Any = threading.stack_size
    field_size: Any = _csv.field_size_limit
    return [
        *(_module(name, vars(sys.modules[name])) for name in _PATCHED if name in sys.modules),
        Property("hooks of sys", lambda: [vars(sys).get(name) for name in _HOOKS], _restore_hooks),
        _list("filters of warnings", cast("list[Any]", warnings.filters)),
        _list("sys.path", sys.path),
        _list("callbacks of garbage collection", gc.callbacks),
        _finders(set(sys.modules)),
        Property("thresholds of garbage collection", gc.get_threshold, lambda before: gc.set_threshold(*before)),
        Property("debugging of garbage collection", gc.get_debug, gc.set_debug),
        Property("the switch interval", sys.getswitchinterval, sys.setswitchinterval),
        Property("the limit of digits", sys.get_int_max_str_digits, sys.set_int_max_str_digits),
        Property("the stack size of threads", stack_size, stack_size),
        Property("the limit of CSV fields", field_size, field_size),
        Property("tracing of memory", tracemalloc.is_tracing, _switch(tracemalloc.start, tracemalloc.stop)),
        Property("faulthandler", faulthandler.is_enabled, _switch(faulthandler.enable, faulthandler.disable)),
        Property("the event loop policy", asyncio.get_event_loop_policy, asyncio.set_event_loop_policy),
        Property(
            "the start method of multiprocessing",
            lambda: start._actual_context,  # noqa: SLF001  # asking for it by its function would set it
            functools.partial(setattr, start, "_actual_context"),
            usual=True,
        ),
        _decimal(),
        _loggers(logging.root.manager.loggerDict),
        _thread_locals(),
        # Seeded anew: a handler that seeds them must not make the tokens of the next one predictable.
        Property("random numbers", random.seed, lambda before: None),
        Property("numbers of numpy", _seed_numpy, lambda before: None),
    ]


def _seed_numpy() -> None:
    getattr(sys.modules.get("numpy.random"), "seed", int)()


def _switch(on: Callable[[], object], off: Callable[[], object]) -> Callable[[bool], None]:
    def restore(before: bool) -> None:
        (on if before else off)()

    return restore


def _restore_hooks(before: list[Any]) -> None:
    for name, value in zip(_HOOKS, before, strict=True):
        if value is not None:
            setattr(sys, name, value)
        elif name in vars(sys):
            delattr(sys, name)


def _list(name: str, items: list[Any]) -> Property:
    def restore(before: list[Any]) -> None:
        items[:] = before
        with warnings.catch_warnings():
            pass  # makes Python forget what it remembers of other filters

    return Property(name, items.copy, restore)


def _module(name: str, names: dict[str, Any]) -> Property:
    """The functions of a module."""

    def restore(before: dict[str, Any]) -> str:
        changed = [each for each in {**names, **before} if names.get(each, names) is not before.get(each, before)]
        for each in changed if len(changed) <= _MOST_PATCHED else ():
            if each in before:
                names[each] = before[each]
            else:
                del names[each]
        return ", ".join(changed[:10])

    found = Property(f"a changed module {name}", lambda: names, restore, usual=name in _CACHING)
    found.original = dict(names)
    return found


def _finders(known: set[str]) -> Property:
    """What finds modules, without that of packages imported since: their later imports need it."""

    def is_known(finder: Any) -> bool:
        return getattr(finder, "__module__", "") in known

    def restore(before: list[Any]) -> None:
        sys.meta_path[:] = [*before, *(each for each in sys.meta_path if not is_known(each))]

    return Property("sys.meta_path", lambda: [*filter(is_known, sys.meta_path)], restore)


def _decimal() -> Property:
    """The context of decimals that all attempts share because a module has used it, and the template of theirs."""
    contexts = [value for variable, value in copy_context().items() if variable.name == "decimal_context"]
    contexts.append(decimal.DefaultContext)

    def read() -> list[list[Any]]:
        return [[*map(functools.partial(getattr, each), _CONTEXT[:-1]), dict(each.traps)] for each in contexts]

    def restore(before: list[list[Any]]) -> None:
        for each, values in zip(contexts, before, strict=True):
            for name, value in zip(_CONTEXT, values, strict=True):
                setattr(each, name, value)

    return Property("the decimal context", read, restore)


def _loggers(known: dict[str, Any]) -> Property:
    """Loggers other than the root; those that were made since get the state of a new one."""
    now = {name: _LOGGER(each) for name, each in known.items() if isinstance(each, logging.Logger)}
    before = {name: (*state[:3], *map(list, state[3:])) for name, state in now.items()}

    def read() -> dict[str, logging.Logger]:
        loggers = ((name, each) for name, each in known.copy().items() if isinstance(each, logging.Logger))
        return {name: each for name, each in loggers if _LOGGER(each) != before.get(name, _NEW_LOGGER)}

    def restore(none: object) -> None:
        for name, each in read().items():
            level, each.propagate, each.disabled, each.handlers[:], each.filters[:] = before.get(name, _NEW_LOGGER)
            each.setLevel(level)

    return Property("loggers", read, restore, usual=True)


@functools.cache
def _own_thread_locals() -> list[threading.local]:
    """Returns those of modules that are neither Python's nor installed: libraries keep connections in theirs."""
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
    """Removes what earlier attempts have left in this thread of theirs."""
    for each in _own_thread_locals():
        if type(each) is threading.local:
            vars(each).clear()
