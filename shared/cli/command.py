"""What a command is that runs on the machines of the system itself."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Command:
    """A command: the function that runs it, and the extra of the package with what its module imports."""

    module: str
    extra: str
    text: str
    function: str = "main"
    add_arguments: Callable[[argparse.ArgumentParser], Any] | None = None
    arguments: Callable[[argparse.Namespace], list[Any]] = lambda wanted: []
    """Returns the arguments of the function."""
    prints: bool = False
    """Whether it prints and ends: a full disk, or a reader that has closed the pipe, is reported in one line."""
