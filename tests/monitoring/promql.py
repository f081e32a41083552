"""Which metrics and labels a query asks for."""

from __future__ import annotations

import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_MATCHERS = re.compile(r"(?:([a-zA-Z_:][\w:]*)\s*)?\{([^}]*)\}")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_RANGE = re.compile(r"\[[^\]]*\]")
_NAME = re.compile(r"(?<![\w:.$])([a-zA-Z_:][\w:]*)(?!\s*\()(?![\w:])")
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "by", "without", "on", "ignoring"})


def metrics_of(query: str) -> set[str]:
    """The names of the metrics."""
    text = _RANGE.sub("", _GROUPING.sub("", re.sub(r"\{[^}]*\}", "", _STRING.sub("", query))))
    return {name for name in _NAME.findall(text) if name.lower() not in _WORDS}


def labels_of(query: str) -> set[str]:
    """The labels that are matched or grouped by."""
    plain = _STRING.sub("", query)
    matched = {part.strip(" =!~") for _, inside in _MATCHERS.findall(plain) for part in inside.split(",")}
    grouped = {part.strip() for inside in _GROUPING.findall(plain) for part in inside.split(",")}
    return (matched | grouped) - {""}
