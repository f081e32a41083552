"""Shell completion: `taskqueue completion SHELL` prints a script that asks this program for the words that fit.

The parser is asked, so that the scripts have nothing that could be out of date, and names of task types, queues and
schedules come from the gateway if it answers quickly.
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from taskqueue.shared.cli.output import Output
from taskqueue.shared.client import Client, ClientError

COMMAND = "__complete"
"""The first argument by which a script asks; the words before the cursor follow, or are in COMP_LINE."""
WITHIN = 0.5
"""Seconds that the gateway may take."""
_BASH = """\
_taskqueue() {
    local word
    COMPREPLY=()
    while IFS=$'\\t' read -r word _; do
        COMPREPLY+=("$word")
    done < <(COMP_LINE="${COMP_LINE:0:COMP_POINT}" "$1" __complete 2>/dev/null)
}
complete -o default -F _taskqueue taskqueue
"""
_ZSH = """\
#compdef taskqueue
_taskqueue() {
    local line
    local -a found
    for line in "${(@f)$("${(Q)words[1]}" __complete "${(@Q)words[2,CURRENT]}" 2>/dev/null)}"; do
        [[ -n $line ]] && found+=("${line%%$'\\t'*}:${line#*$'\\t'}")
    done
    if (( $#found )); then _describe taskqueue found; else _files; fi
}
if [[ $funcstack[1] == _taskqueue ]]; then _taskqueue "$@"; else compdef _taskqueue taskqueue; fi
"""
_FISH = """\
function __taskqueue_complete
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l found ($words[1] __complete $words[2..-1] "$word" 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path "$word"
    end
end
complete -c taskqueue -f -a '(__taskqueue_complete)'
"""
SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}
_COLLECTIONS = {"type": "types", "task_type": "types", "priority": "queues", "queue": "queues"}
"""Collections of the gateway with the names that an argument takes."""
_NAMED = ("queues", "schedules", "types")
"""Groups of commands whose argument `name` is of a collection."""


def add_command(commands: Any) -> None:
    """Adds the command to the parser."""
    one = commands.add_parser("completion", help="print a script for tab completion in a shell")
    one.add_argument("shell", choices=list(SCRIPTS))
    one.set_defaults(run=print_script)


def print_script(client: Client, wanted: argparse.Namespace, out: Output) -> int:
    """Prints the script of a shell."""
    print(SCRIPTS[wanted.shell], end="", file=out.stream)
    return 0


def complete(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the words that may stand in place of the last one, each with its meaning.

    Without words they are taken from COMP_LINE.
    """
    *before, last = words or _words(os.environ.get("COMP_LINE", ""))
    position = _Position(parser)
    for word in before:
        position.advance(word)
    return [(word, meaning) for word, meaning in position.candidates(last) if word.startswith(last)]


def _words(line: str) -> list[str]:
    """Returns the words of a command line after the command; the last one is "" after a space."""
    for end in ("''" if line[-1:].isspace() else "", "'", '"'):  # with what closes an open quotation
        with suppress(ValueError):
            return shlex.split(line + end)[1:] or [""]
    return [""]


class _Position:
    """A place in a command line: what has been read, and what may follow."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.parser = parser
        self.url: str | None = None
        self._open: argparse.Action | None = None
        """The option whose value follows."""
        self._enter(parser)

    def _enter(self, parser: argparse.ArgumentParser | None) -> None:
        self.parser = parser or argparse.ArgumentParser(add_help=False)
        actions: list[argparse.Action] = getattr(self.parser, "_actions", [])
        self._options = {text: each for each in actions for text in each.option_strings}
        self._positionals = [each for each in actions if not each.option_strings]

    def advance(self, word: str) -> None:
        """Reads one word."""
        if self._open:
            self.url = word if self._open.dest == "url" else self.url
            self._open = None
        elif word.startswith("-"):
            option = self._options.get(word)
            self._open = option if option and option.nargs != 0 else None
        elif self._positionals:
            action = self._positionals[0]
            if isinstance(action.choices, Mapping):
                self._enter(action.choices.get(word))
            elif action.nargs not in ("*", "+"):
                del self._positionals[0]

    def candidates(self, last: str) -> Iterator[tuple[str, str]]:
        """Yields the words that may follow, with their meanings."""
        if not self._open and last.startswith("-"):
            for text, option in self._options.items():
                if option.help != argparse.SUPPRESS and text.startswith("--"):
                    yield text, option.help or ""
        elif action := self._open or next(iter(self._positionals), None):
            yield from self._values(action)

    def _values(self, action: argparse.Action) -> Iterator[tuple[str, str]]:
        group = [*self.parser.prog.split(), ""][1]
        if isinstance(action.choices, Mapping):
            meanings = {each.dest: each.help for each in getattr(action, "_choices_actions", ())}
            yield from ((name, meanings.get(name) or "") for name in action.choices)
        elif action.choices:
            yield from ((str(each), "") for each in action.choices)
        elif collection := group if action.dest == "name" and group in _NAMED else _COLLECTIONS.get(action.dest):
            yield from ((name, "") for name in self._names(collection))

    def _names(self, collection: str) -> list[str]:
        """Returns the names of a collection of the gateway; none if it does not answer."""
        try:
            with Client(self.url, timeout=WITHIN, patience=0) as client:
                return [str(each["name"]) for each in client.transport.ask("GET", f"/{collection}").document["items"]]
        except (ClientError, ValueError, LookupError, OSError):
            return []
