"""The pages on the REST API, made from the OpenAPI document that the gateway builds; no server is started."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from redis import Redis

from firmq.gateway.app import create_app
from firmq.gateway.http.errors import KINDS
from firmq.shared.config.settings import load
from tools.markdown import joined, table

Document = Mapping[str, Any]
BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "maxLength": "length at most"}


def endpoints() -> str:
    """Returns every endpoint and every kind of problem."""
    common = set.intersection(
        *(found for each in _operations() if "store-unavailable" in (found := _problems(each[1])))
    )
    by_tag: dict[str, list[str]] = {}
    for title, operation in _operations():
        by_tag.setdefault(operation["tags"][0], []).append(_endpoint(title, operation, common))
    said = f"Every endpoint that uses Redis may also answer with one of these problems: {_names(common)}."
    kinds = sorted((kind.status, f"`{kind.type}`", kind.meaning) for kind in KINDS.values())
    tagged = (f"## {tag}\n\n{joined(*found)}" for tag, found in by_tag.items())
    return joined(said, *tagged, "## Problems", table("status, type, meaning", kinds))


def objects() -> str:
    """Returns every object of requests and answers with its fields."""
    return joined(*(_object(name, schema) for name, schema in sorted(_document()["components"]["schemas"].items())))


@cache
def _document() -> Document:
    found: Document = create_app(load({}), Redis()).test_client().get("/openapi.json").get_json()
    return found


def _operations() -> Iterator[tuple[str, Document]]:
    for path, operations in _document()["paths"].items():
        for method, operation in operations.items():
            yield f"{method.upper()} {path}", operation


def _problems(operation: Document) -> set[str]:
    return set(re.findall(r"`/problems/([a-z-]+)`", str(operation["responses"])))


def _names(problems: set[str]) -> str:
    return ", ".join(f"`{each}`" for each in sorted(problems))


def _endpoint(title: str, operation: Document, common: set[str]) -> str:
    about = ". ".join(text.rstrip(".") for text in (operation["summary"], operation.get("description")) if text)
    scopes = [f"`{scope}`" for way in operation["security"] for names in way.values() for scope in names]
    needs = f"Scope: {', '.join(scopes) or 'none'}."
    if body := operation.get("requestBody"):
        needs += f" Body: {_type(body['content']['application/json']['schema'])}. {body.get('description', '')}"
    parameters = [
        (f"`{each['name']}`", each["in"], _type(each["schema"]), each.get("description", ""))
        for each in operation["parameters"]
        if each["in"] != "path"
    ]
    answers = [(status, _given(answer), answer["description"]) for status, answer in operation["responses"].items()]
    own = _problems(operation) - common
    return joined(
        f"### {title}",
        f"{about}.",
        needs.rstrip(),
        table("parameter, in, type, meaning", parameters),
        table("status, answer, meaning", (row for row in answers if row[1])),
        f"Problems: {_names(own)}." if own else "",
    )


def _given(answer: Document) -> str:
    found = [(media, each["schema"]) for media, each in answer.get("content", {}).items() if "problem" not in media]
    return ", ".join(_type(schema) if "$ref" in schema else f"`{media}`" for media, schema in found)


def _object(name: str, schema: Document) -> str:
    values = ", ".join(f"`{value}`" for value in schema.get("enum", ()))
    rows = [
        (f"`{field}`", _type(each), "yes" if field in schema.get("required", ()) else "", each.get("description", ""))
        for field, each in schema.get("properties", {}).items()
    ]
    about = " ".join(schema.get("description", "").split())
    return joined(f"## {name}", about, values and f"Values: {values}.", table("field, type, required, meaning", rows))


def _type(schema: Document) -> str:
    """Returns a schema in a few words, an object as a link."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](api-objects.md#{name.lower()})"
    if options := schema.get("anyOf") or schema.get("oneOf"):
        return " or ".join(dict.fromkeys(map(_type, options)))
    if values := schema.get("enum") or ([schema["const"]] if "const" in schema else []):
        return " or ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items') or {})}"
    bounds = [f"{word} {schema[key]}" for key, word in BOUNDS.items() if key in schema]
    return ", ".join([str(schema.get("format") or schema.get("type", "any")), *bounds])
