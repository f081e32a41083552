"""Puts each Lua script together from the files that it names.

A script starts with lines that name its dependencies: `-- @include A B` prepends files, and `-- @step A B` turns other
scripts into functions of their arguments, so that they are part of the same atomic step.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

CONFIRMING = "+"
"""Suffix of a script that also returns whether Redis postponed its writes (`_confirm.lua`)."""

_FUNCTION = re.compile(r"local function (\w+)")
_WORD = re.compile(r"\w+")


@cache
def sources() -> Mapping[str, str]:
    """Returns the text of each Lua file by its name; `lua/` has a folder for each subject."""
    folders = [each for each in (files("shared.redis") / "lua").iterdir() if each.is_dir()]
    return {file.name.removesuffix(".lua"): file.read_text() for folder in folders for file in folder.iterdir()}


@cache
def source(name: str) -> str:
    """Returns the text of a script; a confirming one also returns whether Redis postponed the write."""
    own = name.removesuffix(CONFIRMING)
    steps = [_as_function(each, each) for each in _named("step", own)]
    last = [sources()[own]] if own == name else [_as_function("step", own), sources()["_confirm"]]
    return lean("\n".join(sources()[each] for each in _named("include", own)), "\n".join([*steps, *last]))


@cache
def with_quarantine(name: str) -> str:
    """Returns the text of a script that first quarantines keys of another type than theirs."""
    return f"{sources()['_quarantine']}\n{source(name)}"


def _named(what: str, name: str) -> list[str]:
    """Returns the files that the head of a script names after `@include` or `@step`."""
    head = itertools.takewhile(lambda line: line.startswith("--"), sources()[name].splitlines())
    return [each for line in head if line.startswith(f"-- @{what} ") for each in line.split()[2:]]


def _as_function(name: str, script: str) -> str:
    return f"local function {name}(ARGV)\n{sources()[script]}\nend"


def lean(shared: str, own: str) -> str:
    """Returns `own` with the functions of `shared` in front that it needs, and everything else of `shared`.

    A script defines every function anew at each call, which is noticeable on an idle server: unused functions are left
    out. In `shared`, functions begin with `local function` at the start of a line, and end on it or with `end` at the
    start of another.
    """
    pieces = list(_pieces(shared))
    functions = {name: text for name, text in pieces if name}
    needed: set[str] = set()
    texts = [own, *(text for name, text in pieces if not name)]
    while texts:
        new = functions.keys() & set(_WORD.findall(_code(texts.pop()))) - needed
        needed |= new
        texts += (functions[name] for name in new)
    return "\n".join([*(text for name, text in pieces if not name or name in needed), own])


def _pieces(text: str) -> Iterator[tuple[str, str]]:
    """Yields functions with their names, and single lines with an empty name; comments are left out."""
    name, lines = "", list[str]()
    for line in _code(text).splitlines():
        if not name:
            found = _FUNCTION.match(line)
            name = found[1] if found else ""
        lines.append(line)
        if not name or line == "end" or (len(lines) == 1 and line.endswith(" end")):
            yield name, "\n".join(lines)
            name, lines = "", []


def _code(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))
