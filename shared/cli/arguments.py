"""The parser of command lines as people type them: with options before, between or after the arguments."""

from __future__ import annotations

import argparse
import difflib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

ASKED = "_ARGCOMPLETE"
"""The environment variable with which the script of a shell requests words: the line is read as it is then."""
_NUMBER = re.compile(r"-\.?\d")
_HELP = ("-h", "--help")


class Parser(argparse.ArgumentParser):
    """Sorts the words before argparse reads them: it allows no options after an optional argument or a command."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        words = args or ()
        known, unknown = super().parse_known_args(words if ASKED in os.environ else self._sorted(words), namespace)
        if unknown and not self._commands:
            near = self._near(unknown[0].partition("=")[0], self._option_string_actions)
            self.error(f"unrecognized arguments: {' '.join(unknown)}{near}")
        return known, unknown

    def error(self, message: str) -> NoReturn:
        """Ends with status 2 and a message, which names the choice that was probably meant."""
        if found := re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL):
            message += self._near(found[1], re.findall(r"[\w-]+", found[2]))
        super().error(message)

    @property
    def _commands(self) -> bool:
        return any(each.nargs == argparse.PARSER for each in self._actions)

    def _near(self, word: str, known: Iterable[str]) -> str:
        return "".join(f"; did you mean {each}?" for each in difflib.get_close_matches(word, list(known), 1))

    def _sorted(self, given: Sequence[str]) -> list[str]:
        """Returns the options of this parser, then all other words; words after `--` are none."""
        words, options, others = iter(given), list[str](), list[str]()
        for word in words:
            if word == "--":
                others += ["--", *words] if self._commands else words
            elif self._is_option(word):
                options += [word, *self._value(word, words)]
            else:
                others.append(word)
        dashes = ["--"] if not self._commands and any(each.startswith("-") for each in others) else []
        return [*options, *dashes, *others]

    def _is_option(self, word: str) -> bool:
        if self._commands:  # the command's own are left to it, as is --help
            return word.partition("=")[0] in self._option_string_actions and word not in _HELP
        return word.startswith("-") and word != "-" and not _NUMBER.match(word)

    def _value(self, word: str, words: Iterator[str]) -> list[str]:
        """Returns the word after an option that takes one; an option may be shortened."""
        known = self._option_string_actions
        found = known.get(word) or next((known[each] for each in known if each.startswith(word)), None)
        takes = found is not None and found.nargs != 0 and "=" not in word
        return [each for each in [next(words, None)] if each is not None] if takes else []


def command(group: Any, name: str, text: str, run: Any, *given: str, **defaults: Any) -> argparse.ArgumentParser:
    """Adds a command with plain arguments and options, and returns its parser."""
    one: argparse.ArgumentParser = group.add_parser(name, help=text)
    for each in given:
        one.add_argument(each)
    one.set_defaults(run=run, **defaults)
    return one


def add_limit(one: argparse.ArgumentParser) -> None:
    """Adds the option for the length of a list."""
    one.add_argument("--limit", type=int, default=50, help="maximum number; 0: all (default: 50)")


def add_period(one: argparse.ArgumentParser, what: str) -> None:
    """Adds the options for a period in which tasks did `what`."""
    for name, when in (("since", "at this time or later"), ("until", "at this time or earlier")):
        text = f"{what} {when}, such as 2030-01-31T12:00:00Z"
        one.add_argument(f"--{name}", type=moment, metavar="TIME", help=text)


def moment(text: str) -> datetime:
    """Returns a time that a person gave, in the local time zone if it names none, for argparse. Raises its errors."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write one such as 2030-01-31T12:00:00Z") from None
    if at.tzinfo:
        return at
    try:
        local = at.astimezone()
        there = local.astimezone(UTC).astimezone().replace(tzinfo=None) == at
    except (OverflowError, ValueError):  # by the version of Python
        raise argparse.ArgumentTypeError(f"{text} is out of range") from None
    if not there:
        raise argparse.ArgumentTypeError(f"{text} does not exist here, as clocks are moved then: give a time zone")
    return local


def add_format(one: argparse.ArgumentParser, default: object = argparse.SUPPRESS) -> None:
    """Adds the options for the format of the output."""
    one.add_argument("--json", action="store_true", default=default, help="print JSON, one object per line")
    one.add_argument("-o", choices=["json", "text"], dest="json", default=default, help="the same as a choice")


def add_modules(one: argparse.ArgumentParser) -> None:
    """Adds the modules of handlers."""
    default = "TASK_MODULES, else the examples"
    one.add_argument("modules", nargs="*", metavar="MODULE", help=f"module with handlers (default: {default})")
