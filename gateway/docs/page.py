"""Renders the OpenAPI document as a page."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

_METHODS = ("get", "post", "put", "delete")


def render(document: dict[str, Any]) -> str:
    """Returns the page: operations by tag, then every schema."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["kind"] = kind
    template = environment.from_string((files("firmq.gateway.docs") / "page.html").read_text("utf-8"))
    tags = _by_tag(document)
    keys = any(_scope(operation["security"]) for each in document["paths"].values() for operation in each.values())
    return template.render(info=document["info"], tags=tags, keys=keys, schemas=document["components"]["schemas"])


def kind(schema: dict[str, Any]) -> str:
    """Returns a schema in a few words: `string`, `array of TaskView`, `number or null`."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " or ".join(kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return " · ".join(str(each) for each in schema["enum"])
    if "const" in schema:
        return json.dumps(schema["const"])
    if schema.get("type") == "array":
        return f"array of {kind(schema.get('items', {}))}"
    return str(schema.get("format") or schema.get("type") or "any JSON")


def _by_tag(document: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    tags: dict[str, list[dict[str, Any]]] = {}
    for path, operations in document["paths"].items():
        for method in _METHODS:
            if method in operations:
                shown = _shown(method, path, operations[method], document)
                tags.setdefault(operations[method]["tags"][0], []).append(shown)
    return tags


def _shown(method: str, path: str, operation: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    body, example = _body(operation, document)
    return {
        "method": method.upper(),
        "path": path,
        "id": operation["operationId"],
        "summary": operation["summary"],
        "description": operation.get("description", ""),
        "parameters": operation["parameters"],
        "body": body,
        "example": json.dumps(example, indent=2) if example is not None else "",
        "scope": _scope(operation["security"]),
        "curl": _curl(method.upper(), path, example, bool(_scope(operation["security"]))),
        "answers": _answers(operation),
    }


def _body(operation: dict[str, Any], document: dict[str, Any]) -> tuple[str, Any]:
    if "requestBody" not in operation:
        return "", None
    name = kind(operation["requestBody"]["content"]["application/json"]["schema"])
    schema = document["components"]["schemas"][name]
    examples = schema.get("examples")
    return name, examples[0] if examples else dict.fromkeys(schema.get("required", ()), "…")


def _scope(security: list[dict[str, list[str]]]) -> str:
    """Returns the required scope; "" when no API key is needed."""
    if not security or {} in security:
        return ""
    [[scope]] = security[0].values()
    return scope


def _curl(method: str, path: str, example: Any, key: bool) -> str:
    parts = ["curl"] if method == "GET" else [f"curl -X {method}"]
    parts.append(f"http://localhost:8000{path}")
    if key:
        parts.append("-H 'Authorization: Bearer KEY'")
    if example is not None:
        parts += ["-H 'Content-Type: application/json'", f"-d '{json.dumps(example)}'"]
    return " ".join(parts)


def _answers(operation: dict[str, Any]) -> list[dict[str, str]]:
    return [
        {"status": status, "description": answer["description"], "kind": _kind_of_answer(answer)}
        for status, answer in operation["responses"].items()
    ]


def _kind_of_answer(answer: dict[str, Any]) -> str:
    return " or ".join(kind(content["schema"]) for content in answer.get("content", {}).values()) or "nothing"
