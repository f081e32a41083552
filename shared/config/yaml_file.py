"""Reads the YAML file of the settings and collects all its mistakes."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def read_tree(path: str, paths: Mapping[str, str], mistakes: list[str]) -> dict[str, Any]:
    """Returns the settings in a file by name; `paths` maps a place in the tree to a name. Appends to `mistakes`."""
    if not path:
        return {}
    import yaml  # imported here because every process reads settings at start-up, and few have such a file

    try:
        tree = yaml.safe_load(Path(path).read_text()) or {}
    except OSError as error:
        mistakes.append(f"CONFIG_FILE: {path} cannot be read: {error.strerror}")
        return {}
    except yaml.YAMLError as error:
        mistakes.append(f"CONFIG_FILE: {path} is not YAML: {' '.join(str(error).split())}")
        return {}
    if not isinstance(tree, dict):
        mistakes.append(f"CONFIG_FILE: {path} must hold a mapping")
        return {}
    found: dict[str, Any] = {}
    _walk(tree, "", paths, found, mistakes, path)
    return found


def _walk(
    node: Mapping[Any, Any], at: str, paths: Mapping[str, str], found: dict[str, Any], mistakes: list[str], file: str
) -> None:
    for key, value in node.items():
        here = f"{at}{key}"
        if here in paths:
            found[paths[here]] = value
        elif isinstance(value, dict) and any(path.startswith(f"{here}.") for path in paths):
            _walk(value, f"{here}.", paths, found, mistakes, file)
        else:
            near = difflib.get_close_matches(here, paths, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            mistakes.append(f"{file}: unknown setting {here}{hint}")
