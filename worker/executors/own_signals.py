"""The signals that an executor handles for itself, and that the processes of its handlers must not inherit.

A program inherits ignored signals from its parent, so that SIGTERM could not end it; handlers are reset when another
program starts. So the executor ignores no signal: those meant for its worker get a handler that does nothing. A process
that is forked, as by multiprocessing, has the dispositions of a Python program before a signal can reach it.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_own: dict[int, Any] = {}
_masks: dict[int, set[Any]] = {}
"""The signal masks of threads that fork right now."""


def handle(number: int, handler: Callable[[int, FrameType | None], Any]) -> None:
    """Sets a handler of the executor, also where faulthandler was registered for the signal."""
    faulthandler.unregister(number)
    signal.signal(number, handler)
    _own[number] = handler


def leave_to_worker() -> None:
    """Leaves the terminal's Ctrl-C and a service manager's SIGTERM to the worker."""
    for number in (signal.SIGINT, signal.SIGTERM):
        handle(number, _ignore)
        signal.siginterrupt(number, False)  # a library in C may not repeat an interrupted call


def keep_from_forks() -> None:
    """Resets the executor's signals in processes that are forked from now on."""
    os.register_at_fork(before=_block, after_in_parent=_unblock, after_in_child=_reset)


def _ignore(signum: int, frame: FrameType | None) -> None:
    pass


def _block() -> None:
    _masks[threading.get_ident()] = signal.pthread_sigmask(signal.SIG_BLOCK, _own)


def _unblock() -> None:
    if (mask := _masks.pop(threading.get_ident(), None)) is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _reset() -> None:
    for number, handler in _own.items():
        if signal.getsignal(number) == handler:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    _own.clear()
    _unblock()
