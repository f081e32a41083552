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
ALLOWED = {"_walk"}  # through a tree


def words(name: str) -> set[str]:
    """The words of a name in snake or camel case, in lower case."""
    return {each.lower() for each in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)}


def names(path: Path) -> Iterator[str]:
    """The names that a file gives: its own, and those of its classes and functions."""
    yield path.stem
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name


def retired(name: str) -> set[str]:
    return set() if name in ALLOWED else words(name) & RETIRED


def test_a_retired_word_is_found_in_any_kind_of_name() -> None:
    assert retired("Crew") == {"crew"}
    assert retired("_hearBell") == {"hear", "bell"}
    assert retired("wait_queue") == set()


def test_no_module_class_or_function_has_a_retired_word() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for part in PARTS
        for path in (Path(ROOT) / part).rglob("*.py")
        for name in names(path)
        if retired(name)
    }
    assert sorted(found) == []
