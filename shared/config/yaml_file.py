"""Reads the YAML file of the settings and collects all its mistakes."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firmq.shared.config import other_names
from firmq.shared.errors import needs

log = logging.getLogger(__name__)


def read_tree(path: str, paths: Mapping[str, str], mistakes: list[str]) -> tuple[dict[str, Any], dict[str, int]]:
    """Returns the settings in a file by name, and the line of each key by its path.

    `paths` maps a place in the tree to a name. Appends to `mistakes`.
    """
    if not path:
        return {}, {}
    with needs("CONFIG_FILE", extra="worker"):  # here, as every process reads settings and few have such a file
        import yaml

        from firmq.shared.config.yaml_reader import Mistake, Reader
    try:
        reader = Reader(Path(path).read_text("utf-8-sig"))
        tree = reader.read() or {}
        if isinstance(tree, dict):
            other_names.unfold(tree, lambda text: Reader(text).read())
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text: save it as UTF-8"
        mistakes.append(f"CONFIG_FILE: {path} cannot be read: {why}")
    except RecursionError:
        mistakes.append(f"CONFIG_FILE: {path} is nested too deeply")
    except yaml.YAMLError as error:
        mark, problem = getattr(error, "problem_mark", None), getattr(error, "problem", None) or error
        what = "" if isinstance(error, Mistake) else "not YAML: "
        where = f"{path}, line {mark.line + 1}" if mark else path
        mistakes.append(f"{where}: {what}{' '.join(str(problem).split())}")
    else:
        if isinstance(tree, dict):
            found: dict[str, Any] = {}
            _walk(tree, "", {**paths, **other_names.PATHS}, found, mistakes, path)
            return found, reader.lines
        mistakes.append(f"CONFIG_FILE: {path} must hold a mapping")
    return {}, {}


def _walk(
    node: Mapping[Any, Any], at: str, paths: Mapping[str, str], found: dict[str, Any], mistakes: list[str], file: str
) -> None:
    for key, value in node.items():
        here = f"{at}{key}"
        if here in other_names.PATHS and value is None:
            continue
        if here in paths:
            ours = other_names.ours(here, value)
            if found.setdefault(paths[here], ours) != ours:
                mistakes.append(f"{file}: {here} differs from another place of the same setting: keep one of them")
        elif isinstance(value, dict) and any(path.startswith(f"{here}.") for path in paths):
            _walk(value, f"{here}.", paths, found, mistakes, file)
        elif here in other_names.WITHOUT_MEANING or here.startswith(other_names.REDISSON):
            why = other_names.WITHOUT_MEANING.get(here, "no setting is like it")
            log.warning("%s: %s has no effect: %s", file, here, why)
        else:
            near = difflib.get_close_matches(here, paths, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            mistakes.append(f"{file}: unknown setting {here}{hint}")
