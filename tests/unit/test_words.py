"""Names use the standard terms of docs/glossary.md; words that this project had invented for them do not come back."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.harness import ROOT

PARTS = ("gateway", "worker", "dashboard", "shared")
RETIRED = frozenset(
    """
    admit announcer aside barred bell bury careful catalogue charge crew damage damaged deal desk desks
    dismiss door doorman ear exchange family forsake handed handover hear heard heritage hiring hungry intake
    joining kin lookout mend news obituary outlived outlook owed pace permit purse recall ring rests shipper
    sight spelled suspect suspects ticket tickets ties timetable told turns untold verdicts walk watchlist
    waterfall wording
    """.split()  # noqa: SIM905  # thirty lines otherwise
)
ALLOWED = {"_walk", "family", "address_family"}  # through a tree; a family of metrics, or of addresses
LUA_NAME = re.compile(r"^\s*(?:local )?function ([a-z_]+)|^\s*local ((?:\w+, )*\w+)", re.MULTILINE)


def words(name: str) -> set[str]:
    """The words of a name in snake or camel case, in lower case."""
    return {each.lower() for each in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def names(path: Path) -> Iterator[str]:
    """A file's name, and those of its classes, functions, parameters, attributes and variables."""
    yield path.stem
    if path.suffix == ".lua":
        for function, variables in LUA_NAME.findall(path.read_text()):
            yield from [function] if function else variables.split(", ")
        return
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name


def retired(name: str) -> set[str]:
    return set() if name in ALLOWED else words(name) & RETIRED


def test_a_retired_word_is_found_in_any_kind_of_name() -> None:
    assert retired("Crew") == {"crew"}
    assert retired("_hearBell") == {"hear", "bell"}
    assert retired("wait_queue") == set()


def test_names_of_each_kind_are_looked_at(tmp_path: Path) -> None:
    python, lua = tmp_path / "crew.py", tmp_path / "bell.lua"
    python.write_text("class Ear:\n    def hear(self, news: str) -> None:\n        self.told = desk = news\n")
    lua.write_text("local kin, mend = 1, 2\nlocal function walk(a)\n  local crew = a\nend\n")
    assert set().union(*map(retired, names(python))) == {"crew", "ear", "hear", "news", "told", "desk"}
    assert set().union(*map(retired, names(lua))) == {"bell", "kin", "mend", "walk", "crew"}


def test_no_name_has_a_retired_word() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for part in PARTS
        for path in (*(Path(ROOT) / part).rglob("*.py"), *(Path(ROOT) / part).rglob("*.lua"))
        for name in names(path)
        if retired(name)
    }
    assert sorted(found) == []
