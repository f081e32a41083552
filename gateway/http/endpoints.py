"""Declares endpoints: their input and responses, checked on each request and documented by `openapi.py`.

Why not flask-openapi3: it reads bodies with Flask's own JSON (broken JSON arrives as "no body", NaN and equal keys
pass), and its response to invalid input is a hook, not a document with a type. The part of it that we would use is
smaller than this file.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flask import Response, g, request
from pydantic import BaseModel, TypeAdapter, ValidationError

from firmq.gateway.auth.authenticator import actor
from firmq.gateway.http import errors
from firmq.gateway.http.across import PART, Across
from firmq.shared.domain import strict_json, validation_messages
from firmq.shared.redis.connections import note_what_is_sent
from firmq.shared.stores.api_keys import Scope
from firmq.shared.stores.idempotency import Request
from firmq.shared.submission import refusals
from firmq.shared.submission.answers import Shown
from firmq.shared.submission.bodies import read_body
from firmq.shared.submission.identity import identity
from firmq.shared.submission.refusals import Kind, Refusal

if TYPE_CHECKING:
    from flask import Flask

    from firmq.gateway.auth.authenticator import Authenticator
    from firmq.gateway.circuit_breaker import CircuitBreaker
    from firmq.shared.stores.audit import Audit

log = logging.getLogger(__name__)

JSON = "application/json"
REPLAYED = {"Idempotency-Replayed": "true"}
"""Header of a response that repeats the one to the first request with the same Idempotency-Key."""
NAME_IN_PATH = r"(?:rq:)?[A-Za-z0-9._-]{1,100}"
"""Names of types, queues, schedules, limits and locks, as the parameter `name` of a path has them."""
F = TypeVar("F", bound=Callable[..., Any])
Model = type[BaseModel] | type[Shown]
"""A class of documents that are sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One response status of an endpoint."""

    description: str
    model: Model | None = None
    media_type: str = JSON


@dataclass(frozen=True, slots=True)
class AuditAction:
    """An action in the audit record and its object: `about` has names of path parameters in braces."""

    what: str
    about: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """The input, responses and refusals of an endpoint."""

    method: str
    path: str
    across: Across | str
    tag: str
    answers: Mapping[int, Answer]
    body: type[BaseModel] | None = None
    body_required: bool = True
    query: type[BaseModel] | None = None
    problems: tuple[Kind, ...] = ()
    store: bool = True
    """Whether it uses Redis, and so answers 503 while Redis is unavailable."""
    events: bool = False
    """Whether it responds with a stream of events and honours the header Last-Event-ID."""
    scope: Scope | None = Scope.ADMIN
    """Required scope of the API key; None: no key needed. `endpoint` sets read for a GET that names none."""
    act: AuditAction | None = None
    """Entry in the audit record."""
    idempotent: bool = False
    """Whether it honours the header Idempotency-Key: `g.request_key` has the key's request, or None. Its class can
    `replay` the first response to such a request."""

    @property
    def produces(self) -> str:
        return next(iter(self.answers.values())).media_type


@dataclass(slots=True, kw_only=True)
class Reply:
    """The response of an endpoint: a document, or bytes that are sent as they are, at once or as a stream."""

    content: BaseModel | Shown | Mapping[str, Any] | bytes | Iterator[bytes]
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    media_type: str = JSON
    noted: str = ""
    """Note for the audit record, before the reason that the client gave."""
    about: str = ""
    """Object of the action in the audit record, when no path parameter names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """The checks before every endpoint, and the audit record of its actions."""

    limits: Limits
    circuit_breaker: CircuitBreaker
    authenticator: Authenticator
    audit: Audit


class Replaying(Protocol):
    """The class of an idempotent endpoint, which can look up stored responses."""

    def replay(self, request: Request, body: Any) -> Reply | None:
        """Returns the first response to this request, or None if none is stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits for reading and validating input."""

    json_depth: int
    context: Mapping[str, Any]
    """Context passed to the validators of the models."""


def endpoint(method: str, path: str, across: Across | str, **about: Any) -> Callable[[F], F]:
    """Declares a method of a routes class as an endpoint; see `Endpoint` for the fields.

    The default scope is read for a GET and admin for any other method, so a forgotten scope opens nothing.
    """
    about.setdefault("scope", Scope.READ if method == "GET" else Scope.ADMIN)

    def declare(function: F) -> F:
        function.endpoint = Endpoint(method=method, path=path, across=across, **about)  # type: ignore[attr-defined]
        return function

    return declare


def endpoints_of(routes: object) -> list[tuple[Endpoint, Callable[..., Reply]]]:
    """Returns the declared endpoints of an object, in the order of the class."""
    declared = [name for name, method in vars(type(routes)).items() if hasattr(method, "endpoint")]
    methods = [getattr(routes, name) for name in declared]
    return [(method.endpoint, method) for method in methods]


def register(app: Flask, routes: object, guards: Guards) -> list[tuple[Endpoint, str]]:
    """Adds an object's endpoints to the app. Returns each with its docstring."""
    added = []
    for about, function in endpoints_of(routes):
        rule = re.sub(r"{(\w+_id)}", r"<id:\1>", about.path).replace("{name}", "<name:name>")
        if about.idempotent and not (about.body and hasattr(routes, "replay")):
            raise ValueError(f"{rule} is idempotent: it needs a body, and {type(routes).__name__} a method replay")
        view = _View(about, function, guards)
        app.add_url_rule(rule, f"{about.method} {about.path}", view, methods=[about.method])
        added.append((about, function.__doc__ or ""))
    return added


@dataclass(frozen=True, slots=True)
class _View:
    """The view function for Flask: an endpoint after its declared checks."""

    about: Endpoint
    function: Callable[..., Reply]
    guards: Guards

    def check_access(self) -> None:
        """Checks key, scope and rate of the request, before anything else of it is read. Raises Refusal."""
        self.guards.authenticator.authenticate(self.about.scope)
        if self.about.store:
            self.guards.authenticator.take_tokens()

    def __call__(self, **arguments: Any) -> Response:
        self.check_access()
        _check_accept(self.about.produces)
        if self.about.query is not None:
            arguments["query"] = _read_query(self.about.query, self.guards.limits)
        if self.about.body is None:
            return self._answer(**arguments)
        return self._answer_to(self.about.body, arguments)

    def _answer_to(self, model: type[BaseModel], arguments: Mapping[str, Any]) -> Response:
        """Answers a repeated request with its first response, even if validation would refuse it now."""
        value = _body_as_sent(self.about, self.guards.limits)
        try:
            return self._answer(body=read_body(model, value, self.guards.limits.context), **arguments)
        except Refusal as refusal:
            if refusal.kind in refusals.CHECKS and (first := self._answered_before(value)):
                return _respond(first)
            raise

    def _answer(self, **arguments: Any) -> Response:
        note_what_is_sent()
        with self.guards.circuit_breaker.guarding() if self.about.store else nullcontext():
            reply = self.function(**arguments)
            if self.about.act is not None and not request.environ.get(PART):
                _record(self.guards.audit, self.about.act, arguments, reply)
            return _respond(reply)

    def _answered_before(self, value: Any) -> Reply | None:
        if not self.about.idempotent or g.request_key is None:
            return None
        routes: Replaying = self.function.__self__  # type: ignore[attr-defined]  # endpoints are methods
        with self.guards.circuit_breaker.guarding():
            return routes.replay(g.request_key, value)


def _record(audit: Audit, act: AuditAction, arguments: Mapping[str, Any], reply: Reply) -> None:
    """Writes an action and its actor to the log and the audit record."""
    given = arguments.get("body") or arguments.get("query")
    reason = ": ".join(filter(None, (reply.noted, getattr(given, "reason", None))))
    who, about = actor(), reply.about or act.about.format(**arguments)
    log.info(act.what, extra={"who": who, "about": about, "reason": reason or None})
    audit.record(who, act.what, about, reason)


def _respond(reply: Reply) -> Response:
    content = reply.content if isinstance(reply.content, Iterator | bytes) else as_json(reply.content) + b"\n"
    response = Response(content, reply.status, content_type=reply.media_type)
    for name, value in reply.headers.items():
        response.headers[name] = value
    return response


def as_json(content: BaseModel | Shown | Mapping[str, Any]) -> bytes:
    """Returns a document as it is sent."""
    if isinstance(content, BaseModel | Shown):
        kind: Any = type(content)
        content = adapter(kind).dump_python(content, mode="json", by_alias=True)
    return strict_json.dump_anything(content)


@cache
def adapter(model: Any) -> TypeAdapter[Any]:
    """Returns what makes the JSON and the schema of a class of documents."""
    return TypeAdapter(model)


def _check_accept(produced: str) -> None:
    accepted = request.environ.get("HTTP_ACCEPT", "*/*")
    if "*/*" in accepted or produced in accepted:
        return
    # A client that lists only the problem type, for errors, still accepts the response.
    if not request.accept_mimetypes.best_match([produced.partition(";")[0], errors.MEDIA_TYPE]):
        wanted = produced.partition(";")[0]
        raise Refusal(errors.NOT_ACCEPTABLE, f"this path responds with {wanted}: add it to Accept, or omit Accept")


def _read_query(model: type[BaseModel], limits: Limits) -> BaseModel:
    double = [name for name, values in request.args.lists() if len(values) > 1]
    if double:
        raise refusals.invalid(
            [errors.parameter_error(name, "is given more than once: send it once") for name in double]
        )
    try:
        return model.model_validate(request.args.to_dict(), context=limits.context)
    except ValidationError as error:
        raise refusals.invalid(
            [errors.parameter_error(str(path[0]), text) for path, text in validation_messages.explain(error, model)]
        ) from None


def _body_as_sent(about: Endpoint, limits: Limits) -> Any:
    if about.body and not (request.content_type or request.content_length):
        # The missing fields are a more useful error than the missing media type.
        read_body(about.body, {}, limits.context)
    if not (about.body_required or request.get_data()):
        return {}
    _check_media_type()
    value = strict_json.parse(request.get_data(cache=False), max_depth=limits.json_depth)
    if about.idempotent:
        path = about.path.format(**(request.view_args or {}))
        g.request_key = request_key(request.headers.get("Idempotency-Key"), path, value)
    return value


def request_key(header: str | None, path: str, value: Any) -> Request | None:
    """Returns the identity of a repeatable request; None without a header. Raises Refusal when it is malformed."""
    # The client is part of the identity, so that a key of one client reveals nothing of another's requests.
    return None if header is None else identity(g.get("client", ""), header, path, value)


def _check_media_type() -> None:
    given = request.content_type or ""
    if request.mimetype != JSON:
        raise Refusal(errors.MEDIA, f"the body must be {JSON}: set the header Content-Type, got {given[:80]!r}")
    if request.mimetype_params.get("charset", "utf-8").lower() not in ("utf-8", "utf8"):
        raise Refusal(errors.MEDIA, f"the charset of {JSON} must be utf-8: omit it, got {given[:80]!r}")
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise Refusal(errors.MEDIA, f"compressed bodies are not supported: send it without {encoding[:40]!r}")
