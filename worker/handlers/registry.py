"""The registered handlers, and how the data of a task becomes their arguments.

The JSON Schema of the arguments comes from the function's signature, by pydantic: the gateway's validation and the
handler's arguments have one source.
"""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import os
import re
import sys
import traceback
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pydantic import ConfigDict, StrictBool, StrictStr, TypeAdapter, ValidationError, constr, create_model
from pydantic.errors import PydanticSchemaGenerationError, PydanticUndefinedAnnotation

from firmq.shared.domain.json_schema import UNCHECKED_PATTERN, SchemaWriter
from firmq.shared.domain.limit import Limit, read_limit
from firmq.shared.domain.preview import PREVIEW, PreviewError, check_template
from firmq.shared.domain.queue_selection import QUEUE_NAME
from firmq.shared.domain.retry import Changes, RetryRules, Rule, read_rules
from firmq.shared.domain.task_fields import Jitter, Multiplier, Retries, RetrySeconds, Timeout
from firmq.shared.errors import FirmqError
from firmq.shared.stores.task_types import TaskType
from firmq.worker.handlers import errors
from firmq.worker.handlers.task_function import TaskFunction

if TYPE_CHECKING:
    from firmq.shared.config.settings import Settings

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")
_IMPORTS = re.compile(f"^<frozen importlib|^{re.escape(__file__)}$|^{re.escape(importlib.__file__)}$")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


_SECONDS = "a number of seconds from 0 to 315360000"
_ARGUMENTS: Mapping[str, tuple[Any, str]] = {
    "timeout": (Timeout, "a number of seconds above 0, at most 604800, or a timedelta"),
    "max_retries": (Retries, "a whole number from 0 to 1000"),
    "initial_delay": (RetrySeconds, _SECONDS),
    "multiplier": (Multiplier, "a number from 1 to 100"),
    "max_delay": (RetrySeconds, _SECONDS),
    "jitter": (Jitter, "a number from 0 to 1"),
    "threads": (StrictBool, "True or False"),
    "pin_version": (StrictBool, "True or False"),
    "queue": (constr(strict=True, pattern=f"^{QUEUE_NAME.pattern}$"), "letters, digits, `.`, `_` and `-`, at most 64"),
    "preview": (StrictStr, 'text, such as "order {order}"'),
}
"""Accepted arguments of the decorator; None selects the default."""


class HandlerError(FirmqError):
    """A handler cannot be registered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """The function that runs a task type.

    `read` validates the JSON text of the data. It returns the input of `call`: a mapping for keyword arguments, or one
    value. `write` takes the arguments of a call and returns the data.
    """

    name: str
    function: Callable[..., Any]
    read: Callable[[bytes], Any]
    write: Callable[..., Any]
    whole: bool
    is_async: bool
    threads: bool
    schema: Mapping[str, Any]
    timeout: timedelta | None = None
    retry: Changes = field(default_factory=dict)
    rules: RetryRules = field(default_factory=lambda: RetryRules({}))
    give_up_on: tuple[type[BaseException], ...] = ()
    limit: Limit | None = None
    queue: str | None = None
    pin_version: bool = False

    @property
    def concurrent(self) -> bool:
        """Returns whether it mostly waits, so that an executor runs many of its attempts at a time."""
        return self.is_async or self.threads

    def call(self, data: Any) -> Any:
        """Runs the function; a coroutine function returns its coroutine."""
        context = REGISTRY.context
        function = self.function if context is None else _within(context, self)
        return function(data) if self.whole else function(**data)

    def published(self, settings: Settings) -> TaskType:
        """Returns the type as a worker with these settings publishes it."""
        return TaskType(
            name=self.name,
            schema=self.schema,
            description=inspect.getdoc(self.function) or "",
            timeout=self.timeout.total_seconds() if self.timeout else None,
            retry=self.retry,
            limit=self.limit,
            concurrent=self.concurrent and bool(settings.concurrent_executors),
            queue=self.queue,
            pinned_to=settings.app_version if self.pin_version else "",
        )


class Registry:
    """Handlers by type name."""

    def __init__(self) -> None:
        self.handlers: dict[str, Handler] = {}
        self.context: Callable[[], AbstractContextManager[object]] | None = None
        """Returns the context manager around each handler, for example the context of a web app."""

    def add(self, handler: Handler) -> None:
        """Adds a handler, in place of an earlier version. Raises HandlerError when another function has the name."""
        known = self.handlers.get(handler.name)
        if known and not _is_again(known.function, handler.function):
            raise HandlerError(
                f"two handlers are named {handler.name!r}: {_where(known.function)} and {_where(handler.function)}"
            )
        self.handlers[handler.name] = handler


REGISTRY = Registry()
"""The registry of the decorator: the only global, which a decorator needs."""


def task(
    name: str,
    *,
    timeout: float | timedelta | None = None,
    max_retries: int | None = None,
    initial_delay: float | None = None,
    multiplier: float | None = None,
    max_delay: float | None = None,
    jitter: float | None = None,
    retry: Rule | Mapping[type[BaseException], Rule] = None,
    give_up_on: Iterable[type[BaseException]] = (),
    concurrency: int | None = None,
    rate: str | None = None,
    burst: float | None = None,
    threads: bool = False,
    queue: str | None = None,
    preview: str | None = None,
    pin_version: bool = False,
    registry: Registry = REGISTRY,
) -> Callable[[Callable[P, R]], TaskFunction[P, R]]:
    """Registers a function as the handler of a task type, and gives it `submit`, which submits such a task.

    A function whose only parameter is named `data` gets the whole JSON value; any other gets the members of a JSON
    object as its parameters. Annotations define the accepted values (anything that pydantic knows). `timeout` is in
    seconds; the retry fields override the general policy; errors of the types in `give_up_on` are not retried.
    `retry` is a list of pauses in seconds, a function of the error and how many failures there were, which returns the
    pause or None to give up, or a mapping of error classes to these (None: no retry). `max_retries` bounds a function.
    `concurrency` is how many tasks of the type run at once over all workers; `rate`, such as "10/s", how many start,
    `burst` of them at once after a pause. `queue` is where its tasks wait that name neither a queue nor a priority.
    `preview` is how lists show a task's data, such as "order {order} for {customer.name}". With `pin_version` a task
    with stored steps runs on workers of the APP_VERSION that stored the last one, as long as there are any.

    `async def` functions run concurrently on the event loop of an executor; with `threads` other functions run
    concurrently in threads: for those that wait, for example for a partner's API. The rest runs one at a time in a
    process.

    Raises HandlerError at import time when the name, the function, its signature or an argument cannot be used.
    """
    if not isinstance(name, str):
        raise HandlerError(f'@task needs the name of a task type, such as @task("send-invoice"), got {name!r}')
    limits = {"concurrency": concurrency, "rate": rate, "burst": burst}
    policy = {
        "max_retries": max_retries,
        "initial_delay": initial_delay,
        "multiplier": multiplier,
        "max_delay": max_delay,
        "jitter": jitter,
    }
    others = {"threads": threads, "pin_version": pin_version, "queue": queue, "preview": preview}
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    fields = _checked(name, seconds, policy, limits, others, retry, give_up_on)

    def register(function: Callable[P, R]) -> TaskFunction[P, R]:
        if isinstance(function, staticmethod):
            function = function.__func__
        handler = _handler(name, function, **fields)
        registry.add(handler)
        return TaskFunction(name, handler.write, function)

    return register


def _checked(
    name: str,
    seconds: float | None,
    policy: Mapping[str, float | None],
    limits: Mapping[str, Any],
    others: Mapping[str, Any],
    retry: Rule | Mapping[type[BaseException], Rule],
    give_up_on: Iterable[type[BaseException]],
) -> dict[str, Any]:
    """Returns the fields of a handler that the decorator was given. Raises HandlerError for one that cannot be used."""
    for argument, value in {**policy, "timeout": seconds, **others}.items():
        _check(name, argument, value)
    try:
        gives_up = errors.classes_of(give_up_on)
    except ValueError as error:
        raise HandlerError(f"@task({name!r}): {error}") from None
    changes, rules = _rules(name, retry)
    return {
        "timeout": None if seconds is None else timedelta(seconds=seconds),
        "retry": {**changes, **{field: value for field, value in policy.items() if value is not None}},
        "rules": rules,
        "give_up_on": gives_up,
        "limit": _limit(name, limits) if any(each is not None for each in limits.values()) else None,
        **others,
    }


def load(modules: Iterable[str]) -> Registry:
    """Imports the modules that hold handlers. Raises HandlerError naming the module that cannot be imported."""
    for module in modules:
        import_project_module(module)
    return REGISTRY


def import_project_module(module: str) -> None:
    """Imports a module, also from the working directory. Raises HandlerError with the correct name if it is missing.

    The directory follows the standard library, whose names its modules may have, and precedes installed packages.
    """
    here = os.getcwd()
    if here not in map(os.path.abspath, sys.path):
        at = next((at for at, each in enumerate(sys.path) if each.endswith("-packages")), len(sys.path))
        sys.path.insert(at, here)
    name = module.partition(":")[0]
    if "/" in module or module.endswith(".py"):
        name = os.path.relpath(name.removesuffix(".py")).removeprefix("src/").replace("/", ".")
    if name != module:
        what = "is a file" if "/" in module or ":" not in module else "names a function"
        raise HandlerError(f"{module} {what}: give the name of the module, {name}{_elsewhere(name)}")
    try:
        importlib.import_module(module)
    except HandlerError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            why = f"no module named {error.name!r} in {here} or elsewhere on Python's path{_elsewhere(module)}"
        raise HandlerError(f"module {module} cannot be imported: {why}") from error


def _elsewhere(name: str) -> str:
    """Returns a hint if a folder of the working directory, such as src, has the module."""
    path = name.replace(".", "/")
    found = (each.parts[0] for each in Path().glob(f"*/{path}*") if each.stem == name.rpartition(".")[2])
    return next((f"; it is in {folder}: set PYTHONPATH={folder}" for folder in found), "")


def explain(error: HandlerError) -> str:
    """Returns the message, and for a failed import the traceback in the imported modules."""
    if error.__cause__ is None:
        return str(error)
    found = traceback.TracebackException.from_exception(error.__cause__)
    found.stack = traceback.StackSummary.from_list([each for each in found.stack if not _IMPORTS.search(each.filename)])
    is_in_modules = found.stack or isinstance(error.__cause__, SyntaxError)
    return "".join([f"{error}\n", *(found.format() if is_in_modules else ())]).rstrip()


def _within(context: Callable[[], AbstractContextManager[object]], handler: Handler) -> Callable[..., Any]:
    """Returns the handler's function, run in the context in its own thread or coroutine."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with context():
            return handler.function(*args, **kwargs)

    async def run_async(*args: Any, **kwargs: Any) -> Any:
        with context():
            return await handler.function(*args, **kwargs)

    return run_async if handler.is_async else run


def _handler(name: str, function: Callable[..., Any], preview: str | None = None, **options: Any) -> Handler:
    if not NAME.fullmatch(name):
        raise HandlerError(f"{name!r} is not a task type name: use letters, digits, `.`, `_` and `-`, at most 100")
    _check_function(name, function)
    try:
        adapter, whole = _adapter(name, function)
        schema = adapter.json_schema(schema_generator=SchemaWriter)
        if preview is not None:
            # An annotation of the schema, which readers of earlier versions ignore.
            schema[PREVIEW] = check_template(preview)
    except PreviewError as error:
        raise HandlerError(f"{_where(function)}: {error}") from None
    except (PydanticSchemaGenerationError, PydanticUndefinedAnnotation, NameError, TypeError, ValueError) as error:
        raise HandlerError(f"{_where(function)}: its parameters have no JSON form: {error}") from error
    if f'"{UNCHECKED_PATTERN}"' in json.dumps(schema):
        log.warning("%s: gateways do not check a pattern that has flags or look-around", _where(function))
    is_async = inspect.iscoroutinefunction(function)
    if is_async and options["threads"]:
        raise HandlerError(f"{_where(function)}: threads=True is for plain functions; async def needs no threads")
    return Handler(
        name=name,
        function=function,
        read=adapter.validate_json if whole else _keywords(adapter),
        write=_writer(function, adapter, whole=whole, masks=_has_secrets(schema)),
        whole=whole,
        is_async=is_async,
        schema=schema,
        **options,
    )


def _check(name: str, argument: str, value: object) -> None:
    kind, expected = _ARGUMENTS[argument]
    try:
        TypeAdapter(kind | None).validate_python(value)
        if not isinstance(value, int | float | str | timedelta | None):
            raise ValueError  # a Decimal or a Fraction, which pydantic takes for a number and JSON does not
    except ValueError:
        raise HandlerError(f"@task({name!r}): {argument} is {repr(value)[:100]}: use {expected}") from None


def _check_function(name: str, function: Any) -> None:
    """Raises HandlerError for an object that cannot be a handler."""
    if isinstance(function, type | classmethod) or not (callable(function) and hasattr(function, "__qualname__")):
        kind = function.__name__ if isinstance(function, type) else type(function).__name__
        what = f"the class {kind}" if isinstance(function, type) else f"a {kind}"
        raise HandlerError(f"@task({name!r}) is applied to {what}: write a function that calls it, and decorate that")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise HandlerError(
            f"{_where(function)} is a generator, because it has a yield: return a list, or pass each item to `emit`"
        )


def _is_again(known: Callable[..., Any], function: Callable[..., Any]) -> bool:
    """Returns whether a function is another version of a known one: reloaded, or loaded as `__main__` and a module."""
    if "<" in known.__qualname__ or known.__qualname__ != function.__qualname__:  # many functions are named `<lambda>`
        return known is function
    files = {getattr(getattr(each, "__code__", None), "co_filename", each) for each in (known, function)}
    return known.__module__ == function.__module__ or len(files) == 1


def _limit(name: str, given: Mapping[str, Any]) -> Limit:
    try:
        return read_limit(given)
    except ValueError as error:
        raise HandlerError(f"invalid limit of {name!r}: {error}") from error


def _rules(name: str, given: object) -> tuple[Changes, RetryRules]:
    try:
        return read_rules(given) if given is not None else ({}, RetryRules({}))
    except ValueError as error:
        raise HandlerError(f"invalid retry of {name!r}: {error}") from error


def _adapter(name: str, function: Callable[..., Any]) -> tuple[TypeAdapter[Any], bool]:
    """Returns the parser of the data, and whether the function takes it as a whole."""
    parameters = list(inspect.signature(function).parameters.values())
    # Only of the parameters: the result may be annotated with a name that exists for type checkers alone.
    annotated = SimpleNamespace(
        __annotations__={p.name: p.annotation for p in parameters if p.annotation is not p.empty}
    )
    space = getattr(inspect.unwrap(function), "__globals__", {})
    hints = typing.get_type_hints(annotated, space, include_extras=True)
    if any(p.kind in (p.POSITIONAL_ONLY, p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters):
        raise HandlerError(f"{_where(function)}: use named parameters only, without *args, **kwargs or `/`")
    if methods := [p.name for p in parameters if p.name in ("self", "cls")]:
        raise HandlerError(
            f"{_where(function)}: nothing is passed as {methods[0]}: use a function or a static method, or rename it"
        )
    if [p.name for p in parameters] == ["data"]:
        return TypeAdapter(hints.get("data", Any)), True
    if reserved := [p.name for p in parameters if p.name.startswith("_") or p.name == "model_config"]:
        raise HandlerError(f"{_where(function)}: rename {', '.join(reserved)}: pydantic takes no field of such a name")
    members: dict[str, Any] = {
        p.name: (hints.get(p.name, Any), ... if p.default is p.empty else p.default) for p in parameters
    }
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute")  # such as `json`: it is only read
        return TypeAdapter(create_model(name, __config__=ConfigDict(extra="forbid"), **members)), False


def _keywords(adapter: TypeAdapter[Any]) -> Callable[[bytes], dict[str, Any]]:
    def read(text: bytes) -> dict[str, Any]:
        fields: dict[str, Any] = vars(adapter.validate_json(text))  # `dict` of a model takes six times as long
        return fields

    return read


def _has_secrets(schema: object) -> bool:
    """Returns whether data has members such as SecretStr, which pydantic writes as asterisks."""
    if isinstance(schema, list):
        return any(map(_has_secrets, schema))
    return isinstance(schema, dict) and (schema.get("writeOnly") is True or any(map(_has_secrets, schema.values())))


def _writer(function: Callable[..., Any], adapter: TypeAdapter[Any], *, whole: bool, masks: bool) -> Callable[..., Any]:
    signature = inspect.signature(function)

    def write(*args: Any, **kwargs: Any) -> Any:
        if masks:
            raise TypeError(f"{_where(function)}(): a secret would be stored as asterisks: declare it as str")
        try:
            call = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{_where(function)}(): {error}") from None
        if whole:
            call.apply_defaults()
            given, fields = call.arguments["data"], None
        else:  # without the defaults: the worker's apply
            given, fields = call.arguments, set(call.arguments)
        value = adapter.validate_python(given, by_alias=True, by_name=True)
        written = adapter.dump_python(value, mode="json", include=fields, by_alias=True, round_trip=True)
        try:
            adapter.validate_json(json.dumps(written))
        except ValidationError as error:
            raise ValueError(
                f"{_where(function)}(): a serializer writes values that do not fit the parameters: {error}"
            ) from None
        return written

    return write


def _where(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
