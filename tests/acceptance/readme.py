"""The tables of the README, made from the code; `python -m tests.acceptance.readme` writes them into it."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from shared.config.settings import Settings, yaml_path
from tests.acceptance.running import product
from tests.harness import ROOT

README = ROOT / "README.md"


def settings_table() -> str:
    """Every setting."""
    rows = [
        f"| `{name.upper()}` | `{yaml_path(name)}` | {_shown(field.default)} | {field.description} |"
        for name, field in Settings.model_fields.items()
    ]
    return "\n".join(["| variable | in the YAML file | default | meaning |", "|---|---|---|---|", *rows])


def endpoints_table(openapi: dict[str, Any]) -> str:
    """Every endpoint of the gateway."""
    rows = [
        f"| `{method.upper()} {path}` | {_scope(operation)} | {operation['summary'].rstrip('.')} |"
        for path, operations in openapi["paths"].items()
        for method, operation in operations.items()
        if isinstance(operation, dict) and "summary" in operation
    ]
    return "\n".join(["| endpoint | scope | does |", "|---|---|---|", *rows])


def metrics_table(exposition: str) -> str:
    """Every metric of ours that a running system shows on one page."""
    kinds = {"counter": "counter", "gauge": "gauge", "histogram": "histogram", "unknown": "gauge"}
    rows = {}
    for family in text_string_to_metric_families(exposition):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        kind = kinds.get(family.type, family.type)
        rows[name] = f"| `{name}` | {kind} | {family.documentation.rstrip('.')} |"
    return "\n".join(["| metric | kind | meaning |", "|---|---|---|", *(rows[name] for name in sorted(rows))])


def section(text: str, name: str) -> str:
    """What stands between the marks of a table."""
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end of {name} -->", text, re.DOTALL)
    assert found, f"README.md has no marks for {name}"
    return found[1]


def with_section(text: str, name: str, content: str) -> str:
    """The text with a table put between its marks."""
    block = f"<!-- {name} -->\n{content}\n<!-- end of {name} -->"
    pattern = rf"<!-- {name} -->(?:\n.*?\n<!-- end of {name} -->)?"
    return re.sub(pattern, lambda _: block, text, count=1, flags=re.DOTALL)


def exercise(api: httpx.Client) -> None:
    """Makes something of everything happen, so that every metric has a value."""
    for data in ("some words", ""):
        api.post("/tasks", json={"type": "process", "data": data, "max_retries": 1}).raise_for_status()
    done = api.post("/tasks", json={"type": "calculate", "data": "1/0", "max_retries": 0}).json()["task_id"]
    api.get(f"/tasks/{done}/result", params={"wait": 10}).raise_for_status()


def _scope(operation: dict[str, Any]) -> str:
    return ", ".join(f"`{scope}`" for way in operation["security"] for scopes in way.values() for scope in scopes)


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return "`" + ", ".join(f"{key}:{number}" for key, number in value.items()) + "`"
    if isinstance(value, tuple):
        return f"`{','.join(map(str, value))}`" if value else ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value}`" if value != "" else ""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, product(Path(folder)) as running:
        exercise(running.api)
        text = README.read_text()
        text = with_section(text, "settings", settings_table())
        text = with_section(text, "endpoints", endpoints_table(running.api.get("/openapi.json").json()))
        text = with_section(text, "metrics", metrics_table(running.api.get("/metrics").text))
        README.write_text(text)


if __name__ == "__main__":
    main()
