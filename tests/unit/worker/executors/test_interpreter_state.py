"""What a handler changed in the interpreter is found and undone."""

from __future__ import annotations

import asyncio
import csv
import decimal
import faulthandler
import gc
import http.client
import importlib
import logging
import multiprocessing
import os
import random
import signal
import ssl
import sys
import threading
import time
import tracemalloc
import types
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from firmq.worker.executors import interpreter_state
from firmq.worker.executors.leftovers import Leftovers
from firmq.worker.executors.process_state import Group, ProcessState

own = threading.local()


def _shut_up() -> None:
    warnings.simplefilter("error")
    warnings.filters = []


def _change_loggers() -> None:
    for name in ("asyncio", "made.by.a.handler"):
        logger = logging.getLogger(name)
        logger.setLevel(50)
        logger.addHandler(logging.NullHandler())
        logger.propagate = False


def _loggers() -> list[object]:
    loggers = map(logging.getLogger, ("asyncio", "made.by.a.handler"))
    return [(each.level, each.handlers[:], each.propagate, each.isEnabledFor(20)) for each in loggers]


class Finder:
    @staticmethod
    def find_spec(*about: object) -> None:
        return None


def _switch_faulthandler() -> None:
    if faulthandler.is_enabled():
        faulthandler.disable()
    else:
        faulthandler.enable(file=2)


def _made_record(*arguments: Any, **options: Any) -> logging.LogRecord:
    return logging.LogRecord(*arguments, **options)


def _set(where: Any, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(where, name, value)


CHANGES: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "time.time": (_set(time, "time", int), lambda: time.time),
    "an unchecked certificate": (
        _set(ssl, "_create_default_https_context", ssl._create_unverified_context),
        lambda: ssl._create_default_https_context,
    ),
    "a builtin": (_set(sys.modules["builtins"], "shout", print), lambda: "shout" in vars(sys.modules["builtins"])),
    "an opener": (
        lambda: urllib.request.install_opener(urllib.request.build_opener()),
        lambda: vars(urllib.request)["_opener"],
    ),
    "threading.excepthook": (_set(threading, "excepthook", print), lambda: threading.excepthook),
    "threading.settrace": (lambda: threading.settrace(print), threading.gettrace),
    "warnings": (_shut_up, lambda: [id(warnings.filters), *warnings.filters]),
    "sys.path": (lambda: sys.path.insert(0, "/elsewhere"), lambda: sys.path[:]),
    "gc callbacks": (lambda: gc.callbacks.append(print), lambda: gc.callbacks[:]),
    "gc thresholds": (lambda: gc.set_threshold(1, 1, 1), gc.get_threshold),
    "switch interval": (lambda: sys.setswitchinterval(5), sys.getswitchinterval),
    "digits": (lambda: sys.set_int_max_str_digits(640), sys.get_int_max_str_digits),
    "stack size": (lambda: threading.stack_size(65536), threading.stack_size),
    "csv": (lambda: csv.field_size_limit(10), csv.field_size_limit),
    "policy": (lambda: asyncio.set_event_loop_policy(asyncio.DefaultEventLoopPolicy()), asyncio.get_event_loop_policy),
    "sys.excepthook": (_set(sys, "excepthook", print), lambda: sys.excepthook),
    "tracemalloc": (tracemalloc.start, tracemalloc.is_tracing),
    "faulthandler": (_switch_faulthandler, faulthandler.is_enabled),
    "a log record factory": (lambda: logging.setLogRecordFactory(_made_record), logging.getLogRecordFactory),
    "logging.raiseExceptions": (_set(logging, "raiseExceptions", False), lambda: logging.raiseExceptions),
    "captured warnings": (lambda: logging.captureWarnings(True), lambda: vars(logging)["_warnings_showwarning"]),
    "http.client": (_set(http.client.HTTPConnection, "debuglevel", 1), lambda: http.client.HTTPConnection.debuglevel),
    "encoding": (lambda: cast("Any", sys.stdout).reconfigure(encoding="latin-1"), lambda: sys.stdout.encoding),
    "errors": (lambda: cast("Any", sys.stderr).reconfigure(errors="ignore"), lambda: sys.stderr.errors),
    "start method": (
        lambda: multiprocessing.set_start_method("spawn", force=True),
        lambda: multiprocessing.get_start_method(allow_none=True),
    ),
    "loggers": (_change_loggers, _loggers),
    "thread-local": (_set(own, "tenant", "acme"), lambda: vars(own).copy()),
}
COSTLY: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
    "sys.tracebacklimit": (_set(sys, "tracebacklimit", 0), lambda: delattr(sys, "tracebacklimit")),
    "sys.meta_path": (lambda: sys.meta_path.insert(0, Finder), lambda: sys.meta_path.remove(Finder)),
    "decimals": (_set(decimal.DefaultContext, "prec", 3), _set(decimal.DefaultContext, "prec", 28)),
}


@pytest.fixture(autouse=True)
def _random_numbers() -> Iterator[None]:
    before = random.getstate()
    yield
    random.setstate(before)


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_undone(what: str) -> None:
    multiprocessing.set_start_method(None, force=True)
    interpreter_state._own_thread_locals.cache_clear()
    change, look = CHANGES[what]
    group = Group(interpreter_state.properties())
    before = look()
    assert group.restore() == []
    try:
        change()
        assert look() != before
    finally:
        changes = group.restore()
    assert look() == before
    assert all(each.undone for each in changes)
    assert group.restore() == []


@pytest.mark.parametrize("what", COSTLY)
def test_a_change_that_is_not_undone_costs_the_executor(what: str) -> None:
    change, undo = COSTLY[what]
    group = Group(interpreter_state.properties())
    assert group.restore() == []
    change()
    try:
        assert [each.undone for each in group.restore()] == [False]
    finally:
        undo()
    assert group.restore() == []


def test_of_many_loggers_those_are_compared_that_differ_from_a_new_one() -> None:
    known: dict[str, Any] = {f"a{number}": logging.Logger(f"a{number}") for number in range(600)}  # noqa: LOG001
    known["b"] = logging.PlaceHolder(known["a1"])
    known["a7"].setLevel("ERROR")
    loggers = interpreter_state._loggers(known)
    known["a7"].setLevel("INFO")
    known["a8"].filters.append(print)
    known["a9"].disabled = True
    assert len(loggers.read()) == 3
    assert loggers.undo() == ("loggers", True)
    assert [known[name].level for name in ("a7", "a8")] == [logging.ERROR, logging.NOTSET]
    assert (known["a8"].filters, known["a9"].disabled) == ([], False)


def test_what_replaces_half_a_module_costs_the_executor() -> None:
    group = Group(interpreter_state.properties())
    before = dict(vars(time))
    try:
        vars(time).update({f"patched_{number}": number for number in range(50)})
        [change] = group.restore()
        assert (change.name, change.undone) == ("a changed module time", False)
    finally:
        vars(time).clear()
        vars(time).update(before)


def test_numbers_that_a_handler_seeded_are_random_again() -> None:
    random.seed(1)
    interpreter_state.seed_anew()
    seen = random.random()
    random.seed(1)
    assert random.random() != seen


@pytest.mark.parametrize("timer", ["ITIMER_VIRTUAL", "ITIMER_PROF"])
def test_timers_of_processor_time_are_stopped(timer: str) -> None:
    time_limit_of_the_test = signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        state = ProcessState()
        signal.setitimer(getattr(signal, timer), 60)
        [change] = state.quick.restore()
        assert (change.name, change.undone) == ("an alarm", True)
        assert signal.getitimer(getattr(signal, timer))[0] == 0
    finally:
        signal.setitimer(signal.ITIMER_REAL, *time_limit_of_the_test)


def test_a_signal_that_faulthandler_took_is_the_executors_again() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    try:
        state = ProcessState()
        faulthandler.register(signal.SIGUSR1, file=2)
        [change] = state.slow.restore()
        assert (change.name, change.undone) == ("signals of faulthandler", True)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert seen == [signal.SIGUSR1]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_that_a_module_has_registered_replaces_no_executor() -> None:
    before = signal.getsignal(signal.SIGUSR2)
    try:
        faulthandler.register(signal.SIGUSR2, file=2)
        state = ProcessState()
        assert state.slow.restore() == []
    finally:
        faulthandler.unregister(signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, before)


def test_numpy_that_a_handler_imports_replaces_no_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "numpy.random", raising=False)
    module = types.ModuleType("numpy.random")
    seeded: list[int] = []
    module.seed = lambda: seeded.append(1)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "numpy.random", module)
    interpreter_state.seed_anew()
    assert seeded


def test_what_an_imported_module_sets_up_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "importer_of_csv.py").write_text("import csv\ncsv.field_size_limit(10**9)\n")
    monkeypatch.syspath_prepend(tmp_path)
    limit = csv.field_size_limit()
    told: list[str] = []
    leftovers = Leftovers(lambda handler, what, level, ends: told.append(what))
    try:
        importlib.import_module("importer_of_csv")
        assert leftovers.fit_after("first", 50_000)
        assert csv.field_size_limit() == 10**9
        csv.field_size_limit(7)
        assert leftovers.fit_after("second", 50_000)
        assert csv.field_size_limit() == 10**9
    finally:
        csv.field_size_limit(limit)
        sys.modules.pop("importer_of_csv", None)
    assert [each for each in told if "CSV" in each] == ["the limit of CSV fields (undone)"]


def test_what_a_handler_changes_around_an_import_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "importer_of_finder.py").write_text(
        "import sys, warnings\n"
        "class Finder:\n    find_spec = staticmethod(lambda *about: None)\n"
        "sys.meta_path.append(Finder)\n"
        "warnings.filterwarnings('ignore', 'set up by an import')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    told: list[tuple[str, bool]] = []
    filters, finders, make_context = warnings.filters[:], sys.meta_path[:], ssl._create_default_https_context
    leftovers = Leftovers(lambda handler, what, level, ends: told.append((what, ends)))
    try:
        ssl._create_default_https_context = cast("Any", ssl._create_unverified_context)
        module = importlib.import_module("importer_of_finder")
        logging.getLogger("made.by.a.handler").setLevel(logging.CRITICAL)
        warnings.simplefilter("error")
        sys.path.insert(0, "/elsewhere")
        random.seed(1)
        seeded = random.getstate()
        with pytest.raises(ImportError):
            importlib.import_module("importer_of_nothing")
        assert random.getstate() == seeded
        assert leftovers.fit_after("first", 50_000)
        assert ssl._create_default_https_context is make_context
        assert logging.getLogger("made.by.a.handler").level == logging.NOTSET
        assert sys.path[0] != "/elsewhere"
        assert sys.meta_path == [*finders, module.Finder]
        assert [each for each in warnings.filters if each not in filters] == [warnings.filters[0]]
        assert "set up by an import" in str(warnings.filters[0])
    finally:
        ssl._create_default_https_context = make_context
        warnings.filters[:], sys.meta_path[:] = filters, finders  # type: ignore[index]
        sys.modules.pop("importer_of_finder", None)
    assert [ends for _, ends in told] == [False]


def test_a_submodule_that_was_imported_after_its_module_was_changed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(logging, "handlers", raising=False)
    group = Group(interpreter_state.properties())
    before, logging.raiseExceptions = logging.raiseExceptions, False
    logging.handlers = types.ModuleType("logging.handlers")  # type: ignore[attr-defined]
    assert [each.undone for each in group.restore()] == [True]
    assert (logging.raiseExceptions, hasattr(logging, "handlers")) == (before, True)


def test_an_import_that_fails_is_traced_as_in_any_program() -> None:
    Leftovers(lambda handler, what, level, ends: None)
    with pytest.raises(ImportError) as caught:
        import importer_of_nothing  # type: ignore[import-not-found]  # noqa: F401
    assert [each.name for each in caught.traceback] == ["test_an_import_that_fails_is_traced_as_in_any_program"]


def test_processors_are_given_back() -> None:
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        pytest.skip("one processor")
    state = ProcessState()
    os.sched_setaffinity(0, {min(before)})
    [change] = state.slow.restore()
    assert (change.undone, os.sched_getaffinity(0)) == (True, before)
