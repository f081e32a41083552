"""Reads YAML as JSON: numbers, true, false and null are written as in YAML 1.2, everything else is text, also a date.

YAML 1.1, which PyYAML reads, takes `no` for false, 1:30 for 90, 010 for 8, and makes dates and sets that JSON lacks.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import yaml

_DEEPEST = 64
_TAG = "tag:yaml.org,2002:"
_SCALARS: dict[str, tuple[str, str, Callable[[str], Any]]] = {
    "null": ("~nN", r"(~|null|Null|NULL|)\Z", lambda text: None),
    "bool": ("tTfF", r"(true|True|TRUE|false|False|FALSE)\Z", lambda text: text.lower() == "true"),
    "int": ("-+0123456789", r"[-+]?(0|[1-9][0-9]{0,999})\Z", int),
    "float": (
        "-+0123456789.",
        r"[-+]?((\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+|\.(inf|Inf|INF)|\.(nan|NaN|NAN))\Z",
        lambda text: float(text.replace(".i", "i").replace(".I", "I").replace(".n", "n").replace(".N", "N")),
    ),
    "merge": ("<", r"<<\Z", str),
    "str": ("", "", str),
}


class Mistake(yaml.MarkedYAMLError):
    """A value that JSON lacks, or a duplicate key."""


class Reader(yaml.SafeLoader):
    """Reads one document; `lines` has the number of the line of each key by its path."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.lines: dict[str, int] = {}
        self._open: list[yaml.Node] = []

    def read(self) -> Any:
        """Returns the value. Raises YAMLError with the place of a mistake."""
        node = self.get_single_node()
        return self._value(node, "") if node else None

    def _value(self, node: yaml.Node, path: str) -> Any:
        if node in self._open or len(self._open) > _DEEPEST:
            raise _mistake(node, f"{path[:80]} contains itself, or is nested more than {_DEEPEST} levels deep")
        self._open.append(node)
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == f"{_TAG}map":
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode) and node.tag == f"{_TAG}seq":
                return [self._value(each, f"{path}.{at}") for at, each in enumerate(node.value)]
            return self._scalar(node, path)
        finally:
            self._open.pop()

    def _mapping(self, node: yaml.MappingNode, path: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        merges = [value for key, value in node.value if key.tag == f"{_TAG}merge"]
        for each in reversed(
            [one for value in merges for one in (value.value if isinstance(value, yaml.SequenceNode) else [value])]
        ):
            if not isinstance(each, yaml.MappingNode):
                raise _mistake(each, f"{path or 'the file'} merges a value that is not a mapping")
            found |= self._value(each, path)
        own = set[str]()
        for key, value in node.value:
            if key.tag == f"{_TAG}merge":
                continue
            if not isinstance(key, yaml.ScalarNode):
                raise _mistake(key, f"{path} has a key that is not text")
            here = f"{path}.{key.value}".removeprefix(".")
            if key.value in own:
                raise _mistake(key, f"{here} appears twice: keep one of them")
            own.add(key.value)
            self.lines[here] = key.start_mark.line + 1
            found[key.value] = self._value(value, here)
        return found

    def _scalar(self, node: yaml.Node, path: str) -> Any:
        name = node.tag.removeprefix(_TAG)
        if not isinstance(node, yaml.ScalarNode) or name not in _SCALARS:
            raise _mistake(node, f"{path} is of the YAML type {name}, which JSON lacks: write it as text")
        try:
            value = _SCALARS[name][2](node.value)
            node.value.encode()
        except ValueError:
            raise _mistake(node, f"{path} is not a valid {name}") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise _mistake(node, f"{path} is not a finite number")
        return value


Reader.yaml_implicit_resolvers = {}
for _name, (_first, _pattern, _) in _SCALARS.items():
    if _pattern:
        Reader.add_implicit_resolver(
            _TAG + _name, re.compile(_pattern), ["", *_first] if _name == "null" else [*_first]
        )


def _mistake(node: yaml.Node, problem: str) -> Mistake:
    return Mistake(problem=problem, problem_mark=node.start_mark)
