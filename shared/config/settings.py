"""Reads every setting. Its name, meaning, default and bounds are in `groups`; only this module reads the environment.

A value comes from the environment variable of the setting's name in capitals, else from the YAML file named by
`CONFIG_FILE` (at the setting's `path`), else from the default. All mistakes are reported together; a process that
finds mistakes exits with status 2.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import new_class
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from pydantic import TypeAdapter, ValidationError, model_validator

from firmq.shared.config import other_names
from firmq.shared.config.groups.conditions import ConditionSettings
from firmq.shared.config.groups.dashboard import DashboardSettings
from firmq.shared.config.groups.group import Group
from firmq.shared.config.groups.housekeeping import HousekeepingSettings
from firmq.shared.config.groups.http_calls import HttpCallSettings
from firmq.shared.config.groups.listening import ListeningSettings
from firmq.shared.config.groups.observability import ObservabilitySettings
from firmq.shared.config.groups.outbox import OutboxSettings
from firmq.shared.config.groups.queues import QueueSettings
from firmq.shared.config.groups.redis import RedisSettings
from firmq.shared.config.groups.retries import RetrySettings
from firmq.shared.config.groups.schedules import ScheduleSettings
from firmq.shared.config.groups.workers import WorkerSettings
from firmq.shared.config.redis_address import completed, demand_one_address
from firmq.shared.config.stores import Stores
from firmq.shared.config.yaml_file import read_tree
from firmq.shared.domain import strict_json
from firmq.shared.domain.queue_selection import QueueSelection
from firmq.shared.domain.task_fields import HIGHEST_SCORE
from firmq.shared.domain.url import in_url
from firmq.shared.errors import InvalidJSON, NotInstalled, SettingsError
from firmq.shared.registry import added

if TYPE_CHECKING:
    from firmq.shared.domain.schedule import Schedule


OF_FEATURES: Sequence[type[Group]] = added("settings")
"""The groups that features add. Their code reads them with `Group.of`."""
if TYPE_CHECKING:

    class FeatureSettings(Group):
        """All of them."""
else:
    FeatureSettings = new_class("FeatureSettings", (*OF_FEATURES, Group))
_ADDRESSES = frozenset(name for each in OF_FEATURES for name in each.ADDRESSES)


class Settings(
    ConditionSettings,
    HttpCallSettings,
    ObservabilitySettings,
    DashboardSettings,
    FeatureSettings,
    ScheduleSettings,
    HousekeepingSettings,
    WorkerSettings,
    RetrySettings,
    QueueSettings,
    OutboxSettings,
    ListeningSettings,
    RedisSettings,
):
    """The settings of all parts; each part uses its own. The base named last is first in the reference."""

    @model_validator(mode="after")
    def _fit_together(self) -> Settings:
        if self.default_priority not in self.queues:
            raise ValueError(f"DEFAULT_PRIORITY: {self.default_priority!r} is not in QUEUES ({', '.join(self.queues)})")
        if self.dashboard_proxy_user_header and not self.dashboard_proxy_secret:
            raise ValueError(
                "DASHBOARD_PROXY_USER_HEADER needs DASHBOARD_PROXY_SECRET; without it, any process that reaches the "
                "dashboard from a trusted address could name any user: configure the proxy to send the secret as "
                "X-Proxy-Secret (openssl rand -hex 32 makes one)"
            )
        if (self.worker_min_score or 0) > (HIGHEST_SCORE if self.worker_max_score is None else self.worker_max_score):
            raise ValueError("WORKER_MIN_SCORE is higher than WORKER_MAX_SCORE: no task has such a score, swap them")
        for each in OF_FEATURES:
            each.check(self)
        _ = self.stores  # reports addresses that nothing can use
        self.declared_schedules()
        self.declared_limits()
        return self

    def declared_schedules(self) -> list[Schedule] | None:
        """Returns the declared schedules; None when the setting is absent. Raises ValueError with all mistakes."""
        if self.schedules is None:
            return None
        # Imported here because the cron parser is slow to import.
        from firmq.shared.domain.schedule_body import read_declared

        found, mistakes = [], []
        for name, entry in self.schedules.items():
            try:
                found.append(read_declared(name, entry, self.queues, self.default_priority, self.egress_policy()))
            except ValueError as error:
                mistakes.append(f"schedules.{name}: {error}")
        if mistakes:
            raise ValueError("\n".join(mistakes))
        return found

    @property
    def handler_modules(self) -> tuple[str, ...]:
        """Returns the modules with the handlers of a worker."""
        http = ("firmq.worker.handlers.http_task",) if self.http_task_hosts else ()
        return (*self.task_modules, *http, *(name for each in OF_FEATURES for name in each.modules(self)))

    def adopted_queues(self) -> Mapping[str, str]:
        """Returns the queues of others that this worker serves, each with the queue of the tasks made of their jobs."""
        return {name: own for each in OF_FEATURES for name, own in each.queues_beside(self).items()}

    @cached_property
    def stores(self) -> Stores:
        """Returns the stores of the system by their numbers. Raises ValueError for addresses that nothing can use."""
        if several := next(filter(None, (each.spread(self) for each in OF_FEATURES)), None):
            return several
        demand_one_address(self.redis_url)
        return Stores({0: self})

    @property
    def has_one_address(self) -> bool:
        """Returns whether these settings have the address of the only store."""
        return next(iter(self.stores.values())) is self

    @property
    def store_url(self) -> str:
        """Returns the address of Redis, from REDIS_URL or host and port, with all options of the client.

        Raises ValueError where each of `stores` has an address of its own.
        """
        if not self.has_one_address:
            raise ValueError("these are the settings of several stores, which have no common address")
        url = self.redis_url or f"redis://{in_url(self.redis_host)}:{self.redis_port}/{self.redis_database}"
        options = {"key_prefix": self.key_prefix}
        if "+sentinel:" in url:
            options |= {
                "sentinel_username": self.redis_sentinel_username,
                "sentinel_password": self.redis_sentinel_password,
            }
        if url.startswith("rediss"):
            options |= {
                "ssl_ca_certs": self.redis_ca_file,
                "ssl_certfile": self.redis_cert_file,
                "ssl_keyfile": self.redis_key_file,
            }
        credentials = {"username": self.redis_username, "password": self.redis_password}
        return completed(url, **credentials, database=self.redis_database, **options)

    @property
    def trace_url(self) -> str:
        """Returns the browser address of a trace, or "". Without a setting, only a local Jaeger's address is known."""
        if self.dashboard_trace_url or self.jaeger_host not in ("localhost", "127.0.0.1"):
            return self.dashboard_trace_url
        return f"http://{in_url(self.jaeger_host)}:16686/trace/{{trace_id}}"

    @cached_property
    def queue_selection(self) -> QueueSelection:
        """Returns the queues that a worker takes from."""
        strict = self.queue_order == "strict"
        bounded, beside = self.queue_executors, self.adopted_queues().values()
        return QueueSelection(self.worker_queues, self.queues, self.default_priority, strict, bounded, beside)

    @property
    def claimed_queue_executors(self) -> dict[str, int]:
        """Returns the maximum executors of each claimed queue that QUEUE_EXECUTORS limits."""
        return {name: most for name, most in self.queue_executors.items() if self.queue_selection.takes(name)}


def yaml_path(name: str) -> str:
    """Returns the place of a setting in the YAML file."""
    extra = Settings.model_fields[name].json_schema_extra
    return str(extra["path"]) if isinstance(extra, dict) else name


def is_service_link(name: str, environment: Mapping[str, str]) -> bool:
    """Returns whether Kubernetes or Docker set the variable of a setting for a service: REDIS_PORT=tcp://..."""
    value = environment.get(name.upper(), "")
    return name.endswith(("_port", "_host")) and value.startswith(("tcp://", "udp://", "sctp://"))


def load(environment: Mapping[str, str] | None = None) -> Settings:
    """Loads the settings of this process.

    Raises SettingsError with every mistake on its own line.
    """
    env = os.environ if environment is None else environment
    mistakes: list[str] = []
    paths = {yaml_path(name): name for name in Settings.model_fields}
    file = env.get("CONFIG_FILE", "")
    values, lines = read_tree(file, paths, mistakes)
    places = {path: f"{file}, line {line}: {path}" for path, line in lines.items()}
    elsewhere = {name: path for path, name in other_names.PATHS.items()}
    sources = {name: places.get(yaml_path(name), places.get(elsewhere.get(name, ""), file)) for name in values}
    for name in Settings.model_fields:
        # An empty variable means "not set": compose and Kubernetes pass empty ones.
        # A Secret made by `echo PASSWORD | base64` ends with a line feed.
        names = [name.upper(), *other_names.variables_of(name)]
        given = {each: env.get(each, "").rstrip("\r\n") for each in names if not is_service_link(each.lower(), env)}
        given = {each: text for each, text in given.items() if text} or _content(name, env, mistakes)
        if not _equal(name, set(given.values())):
            mistakes.append(f"{' and '.join(given)} differ, and are the same setting: keep {name.upper()}")
        for source, text in given.items():
            values[name] = text if isinstance(Settings.model_fields[name].default, str) else _structured(text)
            sources[name] = source
    mistakes += [
        f"{name} is set, and the feature `{feature}`, which reads it, is not installed"
        for name, feature in other_names.OF_FEATURES.items()
        if env.get(name) and name.lower() not in Settings.model_fields
    ]
    settings = None
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        mistakes += [_explain(item, sources, places) for item in error.errors()]
    if settings is not None and environment is None:
        mistakes += _tracing_mistakes(settings)
    if mistakes or settings is None:
        raise SettingsError("\n".join(mistakes))
    return settings


def _content(name: str, env: Mapping[str, str], mistakes: list[str]) -> dict[str, str]:
    """Returns NAME_FILE and the file's content, as Docker's secrets are given; nothing without that variable."""
    variable = f"{name}_file"
    path = env.get(variable.upper(), "")
    if not path or variable in Settings.model_fields:  # API_KEYS_FILE is a setting of its own
        return {}
    try:
        if text := Path(path).read_text().rstrip("\r\n"):
            return {variable.upper(): text}
        mistakes.append(f"{variable.upper()}: the file is empty")
    except (OSError, ValueError) as error:  # its name may be a secret that belongs into the file
        why = getattr(error, "strerror", None) or "it is not UTF-8 text"
        mistakes.append(f"{variable.upper()}: the file cannot be read: {why}")
    return {}


def _equal(name: str, texts: set[str]) -> bool:
    """Returns whether texts are the same value of a setting, such as 30 and 30s."""
    if len(texts) < 2:
        return True
    field = Settings.model_fields[name]
    annotation: Any = Annotated[field.annotation, *field.metadata]
    adapter: TypeAdapter[object] = TypeAdapter(annotation)
    try:
        first, *others = [adapter.validate_python(_structured(text)) for text in texts]
    except ValidationError:
        return False
    return all(each == first for each in others)


def _structured(text: str) -> object:
    """Returns the list or the mapping of a JSON text, and other text as it is."""
    try:
        return strict_json.parse(text.encode(), max_depth=64) if text[0] in "[{" else text
    except (InvalidJSON, UnicodeEncodeError):
        return text


def _tracing_mistakes(settings: Settings) -> list[str]:
    """Returns the mistakes in OpenTelemetry's own variables."""
    # Imported here because it imports this module.
    from firmq.shared.config.collector import check_log_export, destination_of

    try:
        destination_of(settings)
        check_log_export(settings)
    except SettingsError as error:
        return [str(error)]
    return []


def load_or_exit() -> Settings:
    """Loads the settings, or prints every mistake on standard error and exits with status 2."""
    try:
        return load()
    except SettingsError as error:
        exit_with(f"invalid settings:\n  {str(error).replace(chr(10), chr(10) + '  ')}")
    except NotInstalled as error:
        exit_with(str(error))


def exit_with(message: str) -> NoReturn:
    """Prints a message on standard error and exits with status 2."""
    print(message, file=sys.stderr)
    raise SystemExit(2)


def _explain(item: Any, sources: Mapping[str, str], places: Mapping[str, str]) -> str:
    location = [str(part) for part in item["loc"]]
    text = str(item["msg"]).removeprefix("Value error, ")
    if not location:  # such as schedules.nightly: cron ...
        return re.sub(r"(?m)^([\w.-]+): (\w*)", lambda at: _place(at[1], at[2], places), text)
    name = sources.get(location[0], location[0].upper())
    inner = f" ({'.'.join(location[1:])})" if location[1:] else ""
    if (path := ".".join((yaml_path(location[0]), *location[1:]))) in places and not name.isupper():
        name, inner = places[path], ""
    given = repr(item["input"])
    hidden = (
        re.search("password|url|secret|api_keys|users|database|schedules", location[0]) or location[0] in _ADDRESSES
    )
    shown = "" if hidden or "://" in given or "@" in given else f", got {given}"
    return f"{name}{inner}: {text}{shown}"


def _place(path: str, word: str, places: Mapping[str, str]) -> str:
    """Returns the beginning of a message about a part of the YAML file, with its line if it is known."""
    if (inner := places.get(f"{path}.{word}")) is not None:
        return inner
    return f"{places.get(path, path)}: {word}"
