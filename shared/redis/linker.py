"""Finds Lua files, and puts a script together from what scripts share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files

_FUNCTION = re.compile(r"local function (\w+)")
_WORD = re.compile(r"\w+")


@cache
def sources() -> Mapping[str, str]:
    """Returns the text of each Lua file by its name; `lua/` has a folder for each subject."""
    folders = [each for each in (files("shared.redis") / "lua").iterdir() if each.is_dir()]
    return {file.name.removesuffix(".lua"): file.read_text() for folder in folders for file in folder.iterdir()}


def lean(shared: str, own: str) -> str:
    """`own` with those functions of `shared` in front that it needs, and all else that `shared` does.

    A script makes every function that it defines anew at each call, and a server that was idle feels each of them: what
    is not needed is left out. In `shared`, functions begin with `local function` at the start of a line, and end on it
    or with `end` at the start of another.
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
    """Functions with their names, and single lines without one; comments are left out."""
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
