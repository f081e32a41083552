"""`python -m tools.size`: prints how large the product is; with `--check`, status 1 above a budget.

A budget is what the code measures today, rounded up: it is lowered with what is cut, and raised in no commit that does
not say why. A target is where the number should be.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.commits import ROOT, largest

PRODUCT = ("gateway", "worker", "dashboard", "shared", "firmq")
INTEGRATIONS = ("django", "fastapi", "flask", "outbox", "testing")
"""Folders of `firmq/`. Each is one folder with one door that nothing else of the product imports: users import it."""
_GENERATED = re.compile(r"^# Generated from \S+ by ")
_TASKS = ("NewTask", "TaskOptions", "TaskSummary", "Task", "TaskDetail")
"""Classes whose fields are the fields of a task."""
_PARTITIONS = re.compile(r"partition(?!\()", re.IGNORECASE)
"""Not the method of strings, `text.partition(" ")`."""


@cache
def files(*folders: str) -> tuple[Path, ...]:
    """Returns the Python and Lua files below folders which git knows and nothing generates."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", *folders], capture_output=True, text=True, check=True
    )
    paths = [ROOT / name for name in listed.stdout.split("\0") if name.endswith((".py", ".lua"))]
    return tuple(path for path in paths if path.is_file() and not _GENERATED.match(text(path)))


@cache
def text(path: Path) -> str:
    """Returns the text of a file."""
    return path.read_text()


def lines(paths: tuple[Path, ...]) -> int:
    """Returns how many lines files have together."""
    return sum(text(path).count("\n") for path in paths)


def product() -> int:
    """Returns the lines of the product."""
    return lines(files(*PRODUCT))


def core() -> int:
    """Returns the lines outside of folders of features and of the packages for other frameworks."""
    apart = {"features", *INTEGRATIONS}
    return lines(tuple(path for path in files(*PRODUCT) if apart.isdisjoint(path.relative_to(ROOT).parts[:2])))


def mention_partitions() -> int:
    """Returns how many files name partitions and are not about them by their own name."""
    paths = (path for path in files(*PRODUCT) if not _PARTITIONS.search(str(path.relative_to(ROOT))))
    return sum(bool(_PARTITIONS.search(text(path))) for path in paths)


def name_one_option() -> int:
    """Returns how many files name one option of a task, `fair_key`."""
    return sum("fair_key" in text(path) for path in files(*PRODUCT))


def describe_a_task() -> int:
    """Returns how many classes declare eight or more fields, at least half of them with names of a task's fields."""
    classes = [(node.name, _fields(node)) for node in _nodes() if isinstance(node, ast.ClassDef)]
    of_a_task = set[str]().union(*(names for name, names in classes if name in _TASKS))
    return sum(len(names) >= 8 and len(names & of_a_task) * 2 >= len(names) for _, names in classes)


def _fields(node: ast.ClassDef) -> set[str]:
    return {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }


def longest_script() -> int:
    """Returns the lines of the longest Lua file."""
    return max(text(path).count("\n") for path in files(*PRODUCT) if path.suffix == ".lua")


def longest_function() -> int:
    """Returns the lines of the longest function in Python."""
    return max(
        (node.end_lineno or 0) - node.lineno + 1
        for node in _nodes()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )


def largest_settings_class() -> int:
    """Returns how many fields the largest class of settings has."""
    classes = (node for node in _nodes() if isinstance(node, ast.ClassDef) and node.name.endswith("Settings"))
    return max(sum(isinstance(each, ast.AnnAssign) for each in node.body) for node in classes)


def tests() -> int:
    """Returns the lines of the tests."""
    return lines(files("tests"))


def _nodes() -> Iterator[ast.AST]:
    for path in files(*PRODUCT):
        if path.suffix == ".py":
            yield from ast.walk(ast.parse(text(path)))


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure: how it is counted, the most that is allowed, and where it should be."""

    name: str
    count: Callable[[], int]
    budget: int
    target: int


MEASURES = (
    Measure("product lines, Python and Lua, nothing generated", product, 69_145, 60_000),
    Measure("of these the core: neither features nor integrations", core, 51_220, 36_000),
    Measure("files that mention partitions, beside their own", mention_partitions, 13, 15),
    Measure("files that name one option of a task (fair_key)", name_one_option, 13, 10),
    Measure("classes that declare a task (8 or more fields)", describe_a_task, 12, 6),
    Measure("fields of the largest class of settings", largest_settings_class, 24, 40),
    Measure("lines of the longest Lua file", longest_script, 183, 200),
    Measure("lines of the longest function", longest_function, 60, 60),
    Measure("lines of tests", tests, 89_875, 72_000),
    Measure("changed lines of the largest commit, without moves", largest, 1_500, 1_500),
)


def main(arguments: list[str]) -> int:
    """The command line."""
    counted = [(measure, measure.count()) for measure in MEASURES]
    above = [
        f"{measure.name}: {count:,} is above its budget of {measure.budget:,}"
        for measure, count in counted
        if count > measure.budget
    ]
    if arguments == ["--check"]:
        print("\n".join(above), end="\n" if above else "")
        return 1 if above else 0
    print(f"{'':52}{'now':>9}{'budget':>9}{'target':>9}")
    for measure, count in counted:
        print(f"{measure.name:52}{count:>9,}{measure.budget:>9,}{measure.target:>9,}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
