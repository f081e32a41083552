"""Builds each Lua script from the files that it names, and from the map of keys.

A script starts with lines that name its dependencies: `-- @include A B` prepends files, and `-- @step A B` turns other
scripts into functions of their arguments, so that they are part of the same atomic step. A line `-- @insert A` is
replaced by the text of `A.lua`; it splits a long script by subject. `-- @later` marks definitions that only the code
after it uses: a script that returns earlier does not create them. File names are unique over all folders, except that
a file of a feature replaces one of the core, which does nothing: so the core calls what may not be there.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from firmq.shared.redis.keys import Keys, of_features
from firmq.shared.registry import folders_of

CONFIRMING = "+"
"""Suffix of a script that also returns whether Redis postponed its writes (`_confirm.lua`)."""

LATER = "-- @later\n"

_INSERT = re.compile(r"^-- @insert (\w+)\n", re.MULTILINE)
_KEY = re.compile(r"\bkeys\.(\w+)(\(?)")
_STATEMENT = re.compile(r"(?=^(?!end\b|\}|\]\])\S)", re.MULTILINE)
_DEFINITION = re.compile(r"(?:local |)function (\w+)\(|local ([\w, ]+)")
_WORD = re.compile(r"'[^'\n]*'|(?<![\w.])[A-Za-z_]\w*")


@cache
def sources() -> Mapping[str, str]:
    """Returns the text of each Lua file, with its parts, by its name; features have folders of their own."""
    folders = [each for each in (files("firmq.shared.redis") / "lua").iterdir() if each.is_dir()]
    folders += [lua for each in folders_of("shared") if (lua := each / "lua").is_dir()]
    read = {file.name.removesuffix(".lua"): file.read_text("utf-8") for folder in folders for file in folder.iterdir()}

    def whole(text: str) -> str:
        return _INSERT.sub(lambda found: whole(read[found[1]]), text)

    return {name: whole(text) for name, text in read.items()}


@cache
def scripts() -> Sequence[str]:
    """Returns the names of the scripts; the other files are parts of them."""
    return sorted(name for name in sources() if not name.startswith("_"))


@cache
def source(name: str, keys: Keys) -> str:
    """Returns the text of a script; a confirming one also returns whether Redis postponed the write."""
    return _linked(name, keys)


@cache
def with_quarantine(name: str, keys: Keys) -> str:
    """Returns the text of a script that first quarantines keys of another type than theirs."""
    return _linked(name, keys, "_quarantine")


def _linked(name: str, keys: Keys, *first: str) -> str:
    own = name.removesuffix(CONFIRMING)
    included = (sources()[each] for each in [*first, *_named("include", own)])
    steps = [_as_function(each, each).replace(LATER, "") for each in _named("step", own)]
    last = [sources()[own]] if own == name else [_as_function("step", own), sources()["_confirm"]]
    return _literal(lean("\n".join(included), "\n".join([*steps, *last])), keys)


def _literal(script: str, keys: Keys) -> str:
    """Returns a script in which `keys.NAME` and `keys.name(x)` are those keys (`shared/redis/keys.py`)."""
    return _KEY.sub(lambda found: _key(keys, found[1], is_call=bool(found[2])), script)


def _key(keys: Keys, name: str, *, is_call: bool) -> str:
    named = next(getattr(each, name) for each in (keys, *of_features(keys)) if hasattr(each, name))
    return f"('{named('')}' .. " if is_call else f"'{named}'"


def _named(what: str, name: str) -> list[str]:
    """Returns the files that the head of a script names after `@include` or `@step`."""
    head = itertools.takewhile(lambda line: line.startswith("--"), sources()[name].splitlines())
    return [each for line in head if line.startswith(f"-- @{what} ") for each in line.split()[2:]]


def _as_function(name: str, script: str) -> str:
    return f"local function {name}(ARGV)\n{sources()[script]}\nend"


def lean(shared: str, own: str) -> str:
    """Returns `own` with the definitions of `shared` in front that it needs, and the statements of `shared`.

    A script makes every function and table again at each call, which is noticeable on an idle server: unused ones are
    left out. In `shared`, definitions begin with `local` or `function` at the start of a line, and only `end` and `}`
    continue one there.
    """
    statements = [(_defined(text), text) for text in _STATEMENT.split(_code(shared)) if text]
    left = dict(enumerate(statements))
    needed: set[str] = set()
    whole: list[str] = []
    for part in map(_code, own.split(LATER)):
        texts = [part, *(text for names, text in statements if not names)]
        while texts:
            new = set(_WORD.findall(texts.pop())) - needed
            needed |= new
            texts += (text for names, text in statements if names & new)
        used = [at for at, (names, _) in left.items() if not names or names & needed]
        whole += [*(left.pop(at)[1] for at in used), part]
    return "".join(whole)


def _defined(statement: str) -> set[str]:
    """Returns the names that a statement defines; none for one that only has an effect."""
    found = _DEFINITION.match(statement)
    return set(_WORD.findall(found[1] or found[2])) if found else set()


def _code(text: str) -> str:
    """Returns a text without comments and empty lines."""
    lines = (line.partition(" -- ")[0].rstrip() for line in text.splitlines() if not line.lstrip().startswith("--"))
    return "".join(f"{line}\n" for line in lines if line.strip())
