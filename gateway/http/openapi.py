"""Generates the OpenAPI 3.1 document from the declared endpoints and the models of input and output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from firmq.gateway import schemas
from firmq.gateway.http import errors
from firmq.gateway.http.endpoints import JSON, NAME_IN_PATH, Answer, Endpoint, Model, adapter
from firmq.shared.domain.task import TASK_ID
from firmq.shared.submission import answers, refusals
from firmq.shared.submission.answers import Shown
from firmq.shared.submission.refusals import Kind

Document = dict[str, Any]
Declared = Sequence[tuple[Endpoint, str]]

_REF = "#/components/schemas/{model}"
_EVERYWHERE = (errors.FOREIGN, errors.NOT_ACCEPTABLE, errors.INTERNAL)
_WITH_BODY = (refusals.INVALID_JSON, refusals.TOO_LARGE, errors.MEDIA, refusals.INVALID)
_WITH_SCOPE = (errors.KEY_MISSING, errors.KEY_UNKNOWN, errors.SCOPE)
_WITH_STORE = (refusals.STORE, refusals.STORE_REFUSED)
_PATH_PARAMETERS: Mapping[str, Document] = {
    "task_id": {"type": "string", "pattern": f"^{TASK_ID.pattern}$"},
    "batch_id": {"type": "string", "pattern": f"^{TASK_ID.pattern}$"},
    "action_id": {"type": "string", "pattern": f"^{TASK_ID.pattern}$"},
    "name": {"type": "string", "pattern": f"^{NAME_IN_PATH}$"},
}

_SCHEME = "key"
_SECURITY: Document = {
    "type": "http",
    "scheme": "bearer",
    "description": "An API key, if this gateway has keys. Scopes: `submit` submits tasks; `read` reads everything; "
    "`operate` reads, retries, cancels, pauses and sets limits; `admin` does everything, including actions that cannot "
    "be undone.",
}

_IDEMPOTENCY_KEY: Document = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "minLength": 1, "maxLength": 257, "pattern": "^[\\x21\\x23-\\x7e]{1,255}$"},
    "description": "A repeated request with the same key and body gets the first response, with Idempotency-Replayed: "
    "true, and changes nothing. Tasks of a batch that were refused temporarily (queue full, unique_key held) are tried "
    "again.",
}

_LAST_EVENT_ID: Document = {
    "name": "Last-Event-ID",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "pattern": "^[0-9a-f]{16}$"},
    "description": "The id of the last event that was received; it is not sent again.",
}


_EVENT: Document = {
    "type": "object",
    "description": "An event of the stream; its data is JSON in a string.",
    "properties": {"event": {"type": "string"}, "id": {"type": "string"}, "data": {"type": "string"}},
}


def document(declared: Declared, version: str, keys: bool) -> Document:
    """Returns the whole document; `keys`: whether clients need an API key."""
    definitions = _definitions(declared)
    paths: dict[str, Document] = {}
    for about, text in declared:
        paths.setdefault(about.path, {})[about.method.lower()] = _operation(about, text, definitions, keys)
    queries = {about.query.__name__ for about, _ in declared if about.query}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Firmq",
            "version": version,
            "description": "Submit tasks as JSON. A task runs at least once, is retried on failure, and ends "
            "completed, failed (a dead letter), cancelled or expired.",
        },
        "paths": paths,
        "components": {
            "schemas": {name: _without_defaults(each) for name, each in definitions.items() if name not in queries},
            "securitySchemes": {_SCHEME: _SECURITY},
        },
    }


def problems_of(about: Endpoint) -> list[Kind]:
    """Returns every kind of refusal of an endpoint, by status."""
    kinds = {*about.problems, *_EVERYWHERE}
    if about.body:
        kinds.update(_WITH_BODY)
    if about.query:
        kinds.add(refusals.INVALID)
    if about.idempotent:
        kinds.update((refusals.BAD_REQUEST, refusals.IN_PROGRESS, refusals.KEY_REUSED))
    if about.store:
        kinds.update(_WITH_STORE)
    if about.scope:
        kinds.update(_WITH_SCOPE)
        kinds.update((errors.RATE,) if about.store else ())
    if "{" in about.path:
        kinds.add(errors.NO_SUCH_PATH)
    return sorted(kinds, key=lambda kind: (kind.status, kind.slug))


def _definitions(declared: Declared) -> dict[str, Document]:
    taken = {model for about, _ in declared for model in (about.body, about.query) if model}
    given = {answer.model for about, _ in declared for answer in about.answers.values() if answer.model}
    wanted: list[tuple[Any, str]] = [
        *((model, "validation") for model in taken),
        *((model, "serialization") for model in given),
    ]
    wanted += [(schemas.Problem, "serialization")]
    bodies = (schemas.DependencyBody, schemas.BatchItemBody)
    wanted += [(model, "validation") for model in bodies]
    wanted.sort(key=lambda each: _name(each[0]))
    inputs = [(_name(model), mode, adapter(model)) for model, mode in wanted]
    _, found = TypeAdapter.json_schemas(inputs, ref_template=_REF, schema_generator=_Generator)  # type: ignore[arg-type]
    return dict(found["$defs"])


_NAMES = {"Status": "TaskStatus", "Ended": "ResultView", "StoredStep": "StepView"}


def _name(model: type) -> str:
    """Returns the name of a class in the document; those of answers differ from the client's."""
    return _NAMES.get(model.__name__, f"{model.__name__}View") if issubclass(model, Shown) else model.__name__


class _Generator(GenerateJsonSchema):
    def dataclass_schema(self, schema: Any) -> Document:
        return {**super().dataclass_schema(schema), "title": _name(schema["cls"])}

    def get_defs_ref(self, core_mode_ref: Any) -> Any:
        ref, mode = core_mode_ref
        named = re.sub(r"\.submission\.answers\.(\w+)", lambda found: f".{_name(getattr(answers, found[1]))}", ref)
        return super().get_defs_ref((named, mode))  # type: ignore[arg-type]


def _without_defaults(schema: Any) -> Any:
    """Removes defaults: some generators send every default, others require fields that have one."""
    if isinstance(schema, list):
        return [_without_defaults(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    named = schema.get("properties", {})
    kept = {key: _without_defaults(each) for key, each in schema.items() if key not in ("default", "properties")}
    return {**kept, "properties": {name: _without_defaults(each) for name, each in named.items()}} if named else kept


def _operation(about: Endpoint, text: str, definitions: Mapping[str, Document], keys: bool) -> Document:
    summary, _, rest = " ".join(text.split()).partition(". ")
    operation: Document = {
        "tags": [about.tag],
        "summary": summary.rstrip("."),
        "operationId": _operation_id(about),
        "parameters": [
            *_path_parameters(about.path),
            *_query_parameters(about.query, definitions),
            *([_IDEMPOTENCY_KEY] if about.idempotent else []),
            *([_LAST_EVENT_ID] if about.events else []),
        ],
        "responses": _responses(about),
        "security": _security(about, keys),
    }
    if rest:
        operation["description"] = rest
    if about.body:
        content = {JSON: {"schema": _reference(about.body)}}
        operation["requestBody"] = {"required": about.body_required, "content": content}
    return operation


def _security(about: Endpoint, keys: bool) -> list[Document]:
    """Returns the required scope of the key; without keys, no authentication is an alternative."""
    if about.scope is None:
        return []
    return [{_SCHEME: [about.scope]}, *([] if keys else [{}])]


def _operation_id(about: Endpoint) -> str:
    words = re.findall(r"[a-z]+", f"{about.method.lower()} {about.path}")
    return "_".join(words)


def _path_parameters(path: str) -> list[Document]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS[name]}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query_parameters(model: type[BaseModel] | None, definitions: Mapping[str, Document]) -> list[Document]:
    if model is None:
        return []
    found = []
    for name, schema in definitions[model.__name__]["properties"].items():
        parameter = {"name": name, "in": "query", "required": False, "schema": _without_null(schema)}
        if "description" in schema:
            parameter["description"] = schema["description"]
        found.append(parameter)
    return found


def _without_null(schema: Document) -> Document:
    """Removes null: a parameter is omitted, never null."""
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "description", "title")}
    if kept.get("default", 0) is None:
        del kept["default"]
    for alternative in schema.get("anyOf", ()):
        if alternative.get("type") != "null":
            kept.update(alternative)
    return kept


def _responses(about: Endpoint) -> Document:
    responses = {str(status): _answer(answer) for status, answer in about.answers.items()}
    for status, kinds in _by_status(problems_of(about)):
        content = {errors.MEDIA_TYPE: {"schema": _reference(schemas.Problem)}}
        text = " ".join(f"`{kind.type}`: {kind.meaning}" for kind in kinds)
        if str(status) in responses:
            responses[str(status)]["content"].update(content)
            responses[str(status)]["description"] += f" {text}"
        else:
            responses[str(status)] = {"description": text, "content": content}
    return dict(sorted(responses.items()))


def _by_status(kinds: Iterable[Kind]) -> list[tuple[int, list[Kind]]]:
    by_status: dict[int, list[Kind]] = {}
    for kind in kinds:
        by_status.setdefault(kind.status, []).append(kind)
    return sorted(by_status.items())


def _answer(answer: Answer) -> Document:
    if not answer.media_type:
        return {"description": answer.description}
    without_model = _EVENT if answer.media_type.startswith("text/event-stream") else {"type": "string"}
    schema = _reference(answer.model) if answer.model else without_model
    return {"description": answer.description, "content": {answer.media_type: {"schema": schema}}}


def _reference(model: Model) -> Document:
    return {"$ref": _REF.format(model=_name(model))}
