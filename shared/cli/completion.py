"""Shell completion with argcomplete: names of task types, queues and schedules come from the gateway if it answers."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any, cast

from firmq.shared.cli.arguments import command
from firmq.shared.cli.output import Output
from firmq.shared.client import Client, ClientError

WITHIN = 0.5
"""Seconds that the gateway may take."""
_COLLECTIONS = {"type": "types", "task_type": "types", "priority": "queues", "queue": "queues"}
"""Collections of the gateway with the names that an argument takes."""
_NAMED = ("queues", "schedules", "types")
"""Groups of commands whose argument `name` is of a collection."""


def add_command(commands: Any) -> None:
    """Adds the command to the parser."""
    one = command(commands, "completion", "print a script for tab completion in a shell", print_script)
    one.add_argument("shell", choices=["bash", "zsh", "fish"])


def print_script(client: Client, wanted: argparse.Namespace, out: Output) -> None:
    """Prints the script of a shell."""
    from argcomplete.shell_integration import shellcode

    print(shellcode(["firmq"], shell=wanted.shell), file=out.stream)


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers the script of a shell with the words that complete its line, and ends this process."""
    from argcomplete import autocomplete

    autocomplete(parser, always_complete_options=False, default_completer=cast("Any", _names))


def _names(prefix: str, action: argparse.Action, parser: argparse.ArgumentParser, parsed_args: Any) -> Iterable[str]:
    """Returns the names of the collection that an argument is of, else files; none if the gateway does not answer."""
    from argcomplete.completers import FilesCompleter

    group = [*parser.prog.split(), ""][1]
    collection = group if action.dest == "name" and group in _NAMED else _COLLECTIONS.get(action.dest)
    if collection is None:
        return FilesCompleter()(prefix)
    try:
        with Client(parsed_args.url, timeout=WITHIN, patience=0) as client:
            return [str(each["name"]) for each in client.transport.ask("GET", f"/{collection}").document["items"]]
    except (ClientError, ValueError, LookupError, OSError):
        return []
