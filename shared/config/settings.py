"""Defines every setting: name, meaning, default and bounds. Only this module reads the environment.

A value comes from the environment variable of the setting's name in capitals, else from the YAML file named by
`CONFIG_FILE` (at the setting's `path`), else from the default here. All mistakes are reported together; a process that
finds mistakes exits with status 2.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from firmq.shared.config import other_names
from firmq.shared.config.redis_address import completed, key_prefix_of, partitions_of_cluster, without_password
from firmq.shared.config.values import (
    Choices,
    DatabaseUrl,
    Executors,
    HistoryUrl,
    Host,
    HostsAndNetworks,
    Kept,
    KeyPrefix,
    LogFormat,
    LogLevel,
    Mappings,
    Names,
    Partitions,
    Pauses,
    PayloadStoreUrl,
    Port,
    Ports,
    QuietTime,
    ReadableFile,
    RedisUrl,
    RolesByClaim,
    ScopeNames,
    Seconds,
    Secrets,
    SelectedQueues,
    SmtpUrl,
    WebAddresses,
    WebUrl,
    Weights,
    signing_key,
)
from firmq.shared.config.yaml_file import read_tree
from firmq.shared.domain import strict_json
from firmq.shared.domain.egress_policy import EgressPolicy
from firmq.shared.domain.limit import Limit, check_name, read_limit
from firmq.shared.domain.queue_selection import QueueSelection, adopted_queue
from firmq.shared.domain.retry import RetryPolicy
from firmq.shared.domain.task_fields import HIGHEST_SCORE
from firmq.shared.domain.url import in_url
from firmq.shared.errors import InvalidJSON, NotInstalled, SettingsError

if TYPE_CHECKING:
    from firmq.shared.domain.schedule import Schedule


def _at(path: str, default: Any, description: str, **bounds: Any) -> Any:
    """Returns the field of a setting whose place in the YAML file is `path`."""
    return Field(default, description=description, json_schema_extra={"path": path}, **bounds)


class Settings(BaseModel):
    """The settings of all parts; each part uses its own."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    # Redis
    redis_url: RedisUrl = _at(
        "redis.url",
        "",
        "Address of Redis: redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://; overrides "
        "REDIS_HOST and REDIS_PORT.",
    )
    redis_partitions: Partitions = _at(
        "redis.partitions",
        (),
        "Addresses of several Redis servers, each as in REDIS_URL, instead of a single one. The place of an address is "
        "the number of its partition and never changes: a new one is added at the end, and one that was removed leaves "
        "an empty place. The system of a single REDIS_URL grows by naming that address first.",
    )
    redis_host: Host = _at("redis.host", "127.0.0.1", "Host of Redis.")
    redis_port: Port = _at("redis.port", 6379, "Port of Redis.")
    redis_database: int = _at(
        "redis.database",
        0,
        "Number of the Redis database, unless the address has one; a cluster has only 0.",
        ge=0,
        le=10_000,
    )
    redis_username: str = _at("redis.username", "", "Redis user (ACL), unless the address names one.")
    redis_password: str = _at("redis.password", "", "Redis password, unless the address has one.")
    redis_sentinel_username: str = _at("redis.sentinel_username", "", "User of the sentinels, if they require one.")
    redis_sentinel_password: str = _at("redis.sentinel_password", "", "Password of the sentinels, if they require one.")
    redis_ca_file: ReadableFile = _at(
        "redis.ca_file", "", "CA file that verifies the certificate of Redis; empty: the system's authorities."
    )
    redis_cert_file: ReadableFile = _at("redis.cert_file", "", "Client certificate for Redis, if it requires one.")
    key_prefix: KeyPrefix = _at(
        "redis.key_prefix",
        "",
        "Prefix of all keys and channels in Redis, such as shop, for systems that share one Redis; the same for all "
        "parts of a system.",
    )
    redis_timeout: Seconds = _at(
        "redis.timeout",
        0.9,
        "How long gateway and dashboard wait for a connection to Redis and for each reply; housekeepers and workers "
        "wait at least 2 s, a worker at most a fifth of a lease.",
        ge=0.7,
        le=60,
    )
    redis_retries: int = _at(
        "redis.retries",
        1,
        "How often gateway, dashboard and housekeepers resend a Redis command after its connection broke.",
        ge=0,
        le=10,
    )
    redis_retry_interval: Seconds = _at(
        "redis.retry_interval", 0, "Pause before each of the REDIS_RETRIES.", ge=0, le=10
    )
    redis_max_connections: int = _at(
        "redis.max_connections",
        0,
        "Maximum connections to Redis per process of gateway or dashboard; a request waits for a free one as long as "
        "for a reply. 0: one for each thread that needs one.",
        ge=0,
        le=10_000,
    )
    submit_replicas: int = _at(
        "redis.submit_replicas",
        0,
        "Replicas of Redis that must have a task before it is accepted; 0: the primary is enough.",
        ge=0,
        le=16,
    )
    confirm_writes: bool = _at(
        "redis.confirm_writes",
        True,
        "Responses wait until Redis has written the change to its append-only file, so that kill -9 of Redis loses "
        "no accepted task; false: only until it is in the memory of Redis.",
    )
    redis_key_file: ReadableFile = _at("redis.key_file", "", "Private key of the client certificate.")

    # Where the parts listen
    bind_host: str = _at("bind_host", "127.0.0.1", "Address that every part listens on.")
    allow_anonymous: bool = _at(
        "allow_anonymous", False, "Allows listening on addresses other than loopback without keys or users."
    )
    allowed_hosts: Names = _at(
        "allowed_hosts",
        (),
        "Host names that gateway and dashboard accept in requests without a key or password, besides this machine's "
        "names, addresses, and names inside a network.",
    )
    api_keys: Names = _at(
        "gateway.api_keys", (), "API keys of the REST API: lines of `firmq keys create`, separated by commas."
    )
    api_keys_file: str = _at(
        "gateway.api_keys_file", "", "File with more API keys, one per line; reloaded when it changes."
    )
    personal_keys: ScopeNames = _at(
        "personal_keys.scopes",
        (),
        "Scopes of the API keys that users of the dashboard may create for themselves: submit, read, operate, admin; "
        "empty: no personal keys. Set the same value for gateways and dashboards.",
    )
    personal_key_lifetime: Seconds = _at(
        "personal_keys.lifetime",
        30 * 86_400,
        "Maximum time for which a personal API key is valid, from 1d to 365d.",
        ge=86_400,
        le=365 * 86_400,
    )
    personal_keys_per_user: int = _at(
        "personal_keys.per_user", 10, "Maximum personal API keys of one user at a time.", ge=1, le=100
    )
    gateway_port: Port = _at("gateway.port", 8000, "Port of the REST API.")
    gateway_public_port: Port = _at(
        "gateway.public_port", 0, "A further port of the REST API without /metrics, for a load balancer; 0: none."
    )
    gateway_processes: int = _at(
        "gateway.processes", 0, "Processes of a gateway; 0: one per processor, at most four.", ge=0, le=64
    )
    dashboard_port: Port = _at("dashboard.port", 5001, "Port of the dashboard.")
    worker_metrics_port: Port = _at("worker.metrics_port", 9100, "Port of a worker's metrics and health; 0: any free.")
    housekeeper_metrics_port: Port = _at(
        "housekeeper.metrics_port", 9101, "Port of a housekeeper's metrics and health; 0: any free."
    )
    outbox_database: DatabaseUrl = _at(
        "outbox.database", "", "Database with the outbox that a relay sends, as a URL of SQLAlchemy."
    )
    outbox_metrics_port: Port = _at("outbox.metrics_port", 9102, "Port of a relay's metrics and health; 0: any free.")

    keep_alive_timeout: Seconds = _at(
        "keep_alive_timeout",
        75,
        "How long gateway and dashboard keep an idle connection; longer than the load balancer in front of them, which "
        "otherwise sends requests into connections that are being closed.",
        ge=1,
        le=3600,
    )
    shutdown_delay: Seconds = _at(
        "shutdown_delay",
        0,
        "On SIGTERM: how long gateway and dashboard continue to serve while asking clients to reconnect, so that load "
        "balancers and kept-alive connections leave first.",
        le=300,
    )

    # Queues and limits
    queues: Weights = _at(
        "queues",
        {"critical": 6, "high": 4, "normal": 3, "low": 1},
        "Priorities and their weights: how many tasks a worker takes from each in turn.",
        min_length=1,
        max_length=64,
    )
    default_priority: str = _at("default_priority", "normal", "Priority of a task that names none, or `default`.")
    max_queues: int = _at(
        "limits.queues",
        200,
        "Maximum number of queues, including those of QUEUES; a task for one more is refused with 409. One API key can "
        "be the first to use half of them.",
        ge=1,
        le=1000,
    )
    queue_retention: Seconds = _at(
        "limits.queue_retention",
        3600,
        "How long a queue that is not in QUEUES is kept after its last task.",
        ge=60,
    )
    max_queue_length: int = _at(
        "limits.queue_length",
        0,
        "Number of tasks ready to run in a queue from which submissions get 429; 0: no limit.",
        ge=0,
    )
    max_body_bytes: int = _at("limits.body_bytes", 1 << 20, "Largest request body.", ge=1024, le=64 << 20)
    max_json_depth: int = _at("limits.json_depth", 64, "Deepest nesting of a request body.", ge=4, le=200)
    idempotency_ttl: Seconds = _at(
        "limits.idempotency_ttl", 86400, "How long the response to a request with an Idempotency-Key is kept.", ge=60
    )
    max_result_bytes: int = _at(
        "limits.result_bytes", 1 << 20, "Largest result of a task, as JSON.", ge=64, le=64 << 20
    )
    max_steps: int = _at("limits.steps", 1000, "Maximum number of stored steps of a task.", ge=1, le=10_000)
    max_steps_bytes: int = _at(
        "limits.steps_bytes", 1 << 20, "Maximum bytes of all step results of a task together.", ge=1024, le=64 << 20
    )
    max_output_bytes: int = _at(
        "limits.output_bytes",
        1 << 20,
        "Maximum bytes of the output that a task emits; 32 bytes are added for each chunk.",
        ge=1024,
        le=64 << 20,
    )
    payload_store: PayloadStoreUrl = _at(
        "payloads.store",
        "",
        "Where data and results above PAYLOAD_THRESHOLD are kept instead of Redis: a folder that all parts share, "
        "file:///var/lib/firmq/payloads, or a bucket, s3://bucket/prefix; set the same for all parts. Empty: in "
        "Redis.",
    )
    payload_threshold: int = _at(
        "payloads.threshold",
        1 << 16,
        "Bytes of JSON above which the data or the result of a task is kept in PAYLOAD_STORE.",
        ge=1024,
        le=64 << 20,
    )
    refuse_without_worker: bool = _at(
        "gateway.refuse_without_worker",
        False,
        "Rejects tasks of a type that no live worker offers; otherwise they are accepted with a warning, and wait.",
    )
    type_cache_time: Seconds = _at(
        "gateway.type_cache_time",
        1,
        "How long a gateway uses the task types that it has read. Unknown ones, and those whose schema refuses a task, "
        "are looked up at once.",
    )
    type_retention: Seconds = _at(
        "limits.type_retention",
        7 * 86400,
        "How long a task type is kept after the last heartbeat of a worker that offers it.",
        ge=60,
    )
    max_log_bytes: int = _at(
        "limits.log_bytes", 16384, "Bytes of log kept per attempt, the last ones.", ge=0, le=1 << 20
    )
    max_delay: Seconds = _at("limits.delay", 366 * 86400, "Longest delay of a task.")

    task_limits: Mappings = _at(
        "limits.tasks",
        {},
        "Limits by name (type:NAME or key:NAME), each with concurrency, rate (such as 10/s) and burst.",
    )

    # Retries
    max_retries: int = _at("retry.max_retries", 3, "Retries after the first attempt.", ge=0, le=1000)
    initial_retry_delay: Seconds = _at("retry.initial_delay", 5, "Delay before the first retry.")
    retry_backoff_multiplier: float = _at("retry.multiplier", 2.0, "Factor from one delay to the next.", ge=1, le=100)
    max_retry_delay: Seconds = _at("retry.max_delay", 3600, "Longest delay between attempts.")
    retry_pauses: Pauses = _at(
        "retry.pauses",
        (),
        "Delays before the retries, such as 15s, 1m, 5m, instead of growing ones. MAX_RETRIES repeats the last one.",
    )
    retry_jitter: float = _at("retry.jitter", 0.0, "Spreads each delay by up to this share of it, 0 to 1.", ge=0, le=1)
    max_crashes: int = _at("retry.max_crashes", 3, "Crashes after which a task is dead-lettered.", ge=1, le=100)

    # Workers
    task_modules: Names = _at(
        "worker.task_modules", ("firmq.worker.handlers.examples",), "Modules with handlers to import."
    )
    worker_hook_modules: Names = _at(
        "worker.hook_modules",
        (),
        "Modules with `worker_started` and `worker_stopping` hooks, which the main process of a worker imports.",
    )
    hook_timeout: Seconds = _at(
        "worker.hook_timeout",
        30,
        "How long the hooks of an executor or worker that starts may take, and each hook of one that stops.",
        gt=0,
    )
    worker_executors: int = _at(
        "worker.executors", 0, "Executor processes of a worker; 0: one per processor.", ge=0, le=256
    )
    concurrent_executors: int = _at(
        "worker.concurrent_executors",
        1,
        "Executor processes of a worker for handlers that wait (`async def`, or `threads=True`); started if there are "
        "such handlers.",
        ge=0,
        le=256,
    )
    executor_slots: int = _at(
        "worker.executor_slots",
        0,
        "Tasks that one of these processes runs at a time; 0: 100, and 16 in a Django project (with "
        "firmq.django.handlers in TASK_MODULES), where each thread may take a database connection.",
        ge=0,
        le=10_000,
    )
    worker_queues: SelectedQueues = _at(
        "worker.queues",
        {},
        "Queues that this worker takes from: names and patterns such as gpu-*, each optionally with a weight that "
        "overrides QUEUES (gpu-*:5, default:1); empty: all.",
        max_length=100,
    )
    queue_order: Literal["weighted", "strict"] = _at(
        "worker.queue_order",
        "weighted",
        "weighted: this worker divides its claims between queues by weight. strict: it takes from a queue only while "
        "those before it in WORKER_QUEUES are empty.",
    )
    queue_executors: Executors = _at(
        "worker.queue_executors",
        {},
        "Maximum executors per worker that run tasks of a queue at once, such as low:1, so that its long tasks leave "
        "the other executors free.",
    )
    worker_min_score: float | None = _at(
        "worker.min_score", None, "Lowest score of the tasks that this worker claims.", ge=0, le=HIGHEST_SCORE
    )
    worker_max_score: float | None = _at(
        "worker.max_score", None, "Highest score of the tasks that this worker claims.", ge=0, le=HIGHEST_SCORE
    )
    rq_queues: Names = _at(
        "worker.rq.queues",
        (),
        "Queues of RQ programs whose jobs this worker runs, the most important first.",
    )
    rq_allow: Names = _at(
        "worker.rq.allow",
        (),
        "Functions and classes that jobs of RQ programs may name, such as shop.*; all others are refused, and not "
        "imported. The same for all workers that serve a queue of RQ_QUEUES.",
    )
    rq_task_queues: Names = _at(
        "worker.rq.task_queues",
        (),
        "Queues of RQ into which tasks of the type rq enqueue jobs, the default one first; without it, the type is not "
        "offered. All callers that may submit tasks can call what RQ_ALLOW names, except by patterns whose first name "
        "has a wildcard. For systems with one partition.",
    )
    rq_pickle: bool = _at(
        "worker.rq.pickle",
        False,
        "Also runs pickled jobs of RQ programs, which is RQ's default; false: only jobs of RQ's JSON serializer.",
    )
    rq_result_ttl: int = _at(
        "worker.rq.result_ttl",
        500,
        "Seconds for which results of RQ programs' jobs are kept that set no result_ttl, as `--results-ttl` of "
        "`rq worker`; -1: forever.",
        ge=-1,
    )
    task_timeout: Seconds = _at("worker.task_timeout", 600, "Time limit of a task that sets none.", gt=0)
    kill_grace: Seconds = _at(
        "worker.kill_grace", 1.5, "Time from the exception of the time limit to killing the executor."
    )
    lease_time: Seconds = _at("worker.lease_time", 9, "Lease on a running task; extended at a third of it.", ge=1)
    drain_grace: Seconds = _at("worker.drain_grace", 25, "On SIGTERM: how long a worker lets running tasks continue.")
    executor_max_tasks: int = _at(
        "worker.executor_max_tasks", 0, "Tasks after which an executor is replaced; 0: never.", ge=0
    )
    executor_recycle_memory_bytes: int = _at(
        "worker.executor_recycle_memory_bytes",
        512 << 20,
        "Memory above which an executor is replaced between tasks; 0: never.",
        ge=0,
    )
    executor_max_memory_bytes: int = _at(
        "worker.executor_max_memory_bytes",
        2 << 30,
        "Memory above which an executor is killed, with the processes its handlers started; 0: never.",
        ge=0,
    )

    # Housekeeping
    housekeeper_distributed_execution_enabled: bool = _at(
        "housekeeper.distributed_execution.enabled",
        True,
        "Housekeepers share the work under locks; false: no lock is taken, for a single housekeeper.",
    )
    housekeeper_distributed_execution_instance_id: str = _at(
        "housekeeper.distributed_execution.instance_id",
        "",
        "Name of this housekeeper; empty: host name and process id.",
    )
    housekeeper_distributed_execution_lock_ttl: Seconds = _at(
        "housekeeper.distributed_execution.lock_ttl",
        30,
        "Lifetime of a housekeeping lock; renewed at a third of it.",
        ge=1,
    )
    housekeeper_lock_wait: Seconds = _at(
        "housekeeper.distributed_execution.lock_wait", 0, "How long a job waits for its lock; 0: it skips the run."
    )
    housekeeper_lock_on_error: Choices = _at(
        "housekeeper.distributed_execution.on_error",
        {},
        "What a job does when Redis cannot answer whether its lock is free: skip (the default), or run (only unlock, "
        "timeout, schedules).",
    )
    housekeeper_leader_lease: Seconds = _at(
        "housekeeper.distributed_execution.leader_lease",
        10,
        "Longest time without a leader after one died; its lock lives longer, for a leader that is only slow.",
        ge=1,
    )
    housekeeper_unlock_parallelism: int = _at(
        "housekeeper.unlock.parallelism", 5, "Queues whose due tasks are moved at the same time.", ge=1, le=64
    )
    housekeeper_unlock_interval: Seconds = _at(
        "housekeeper.unlock.interval", 0.25, "Pause between checks for due tasks.", gt=0
    )
    housekeeper_timeout_interval: Seconds = _at(
        "housekeeper.timeout.interval", 1, "Pause between checks for ended leases.", gt=0
    )
    housekeeper_recovery_interval: Seconds = _at(
        "housekeeper.recovery.interval", 5, "Pause between runs of the consistency check.", gt=0
    )
    housekeeper_recovery_grace: Seconds = _at(
        "housekeeper.recovery.grace", 10, "Age from which a pending task must have a queue entry."
    )
    housekeeper_ttl_interval: Seconds = _at(
        "housekeeper.ttl.interval", 5, "Pause between removals of old records.", gt=0
    )
    housekeeper_recovery_tasks: int = _at(
        "housekeeper.recovery.tasks",
        2000,
        "Tasks that each run of the consistency check examines; it goes through all of them in turn.",
        ge=0,
        le=50000,
    )
    housekeeper_max_elements_interval: Seconds = _at(
        "housekeeper.max_elements.interval", 10, "Pause between checks of the limits on stored records.", gt=0
    )
    housekeeper_metrics_interval: Seconds = _at(
        "housekeeper.metrics.interval", 1, "Pause between measurements of the whole system by the leader.", gt=0
    )
    housekeeper_schedules_interval: Seconds = _at(
        "housekeeper.schedules.interval", 0.5, "Pause between checks for due schedules.", gt=0
    )
    housekeeper_history_interval: Seconds = _at(
        "housekeeper.history.interval", 1, "Pause between runs that store ended tasks in the history.", gt=0
    )
    housekeeper_payloads_interval: Seconds = _at(
        "housekeeper.payloads.interval",
        600,
        "Pause between removals from PAYLOAD_STORE of what no task needs any longer.",
        gt=0,
    )
    housekeeper_schedules_grace: Seconds = _at(
        "housekeeper.schedules.grace", 60, "Delay after which a due time of a schedule counts as missed."
    )
    housekeeper_alerts_interval: Seconds = _at(
        "housekeeper.alerts.interval", 10, "Pause between evaluations of the alert rules by the leader.", gt=0
    )
    max_completed: Kept = _at(
        "limits.completed", 1_000_000, "Maximum completed tasks kept; the oldest are removed first; 0: no limit."
    )
    max_failed: Kept = _at(
        "limits.failed", 100_000, "Maximum dead letters kept; the oldest are removed first; 0: no limit."
    )
    max_cancelled: Kept = _at(
        "limits.cancelled", 100_000, "Maximum cancelled tasks kept; the oldest are removed first; 0: no limit."
    )
    max_expired: Kept = _at(
        "limits.expired", 100_000, "Maximum expired tasks kept; the oldest are removed first; 0: no limit."
    )
    schedules: Mappings | None = _at(
        "schedules", None, "Schedules by name, as PUT /schedules/NAME takes them; one removed here is deleted."
    )
    retention_completed: Seconds = _at("retention.completed", 86400, "How long a completed task is kept.")
    retention_failed: Seconds = _at("retention.failed", 30 * 86400, "How long a dead letter is kept.")
    retention_cancelled: Seconds = _at("retention.cancelled", 86400, "How long a cancelled task is kept.")
    retention_expired: Seconds = _at("retention.expired", 7 * 86400, "How long an expired task is kept.")
    history_url: HistoryUrl = _at(
        "history.url",
        "",
        "Database of the history, as a SQLAlchemy URL: postgresql+psycopg://... or sqlite:///...; set the same for "
        "housekeepers, gateways and dashboards. Empty: no history; ended tasks are removed after their retention.",
    )
    history_retention_completed: Seconds = _at(
        "history.retention.completed", 30 * 86400, "How long the history keeps completed tasks."
    )
    history_retention_failed: Seconds = _at(
        "history.retention.failed", 365 * 86400, "How long the history keeps tasks that ended as dead letters."
    )
    history_retention_cancelled: Seconds = _at(
        "history.retention.cancelled", 30 * 86400, "How long the history keeps cancelled tasks."
    )
    history_retention_expired: Seconds = _at(
        "history.retention.expired", 30 * 86400, "How long the history keeps expired tasks."
    )

    retention_deleted: Seconds = _at(
        "retention.deleted", 86400, "How long a deleted task can be restored; 0: deletions are final."
    )

    # The dashboard and its users
    dashboard_users: Names = _at(
        "dashboard.auth.users", (), "Dashboard users: name:role:hash, ...; roles are viewer, operator and admin."
    )
    dashboard_users_file: str = _at(
        "dashboard.users_file", "", "File with more dashboard users, one name:role:hash per line."
    )
    dashboard_secret: str = _at(
        "dashboard.secret", "", "Key that signs the dashboard's cookies; empty: generated and kept in Redis."
    )
    dashboard_session: Seconds = _at("dashboard.session", 12 * 3600, "Duration of a dashboard session.", ge=60)
    dashboard_idle: Seconds = _at(
        "dashboard.idle",
        2 * 3600,
        "How long a session lasts without a request; refreshes of open pages do not count. 0: until DASHBOARD_SESSION.",
    )
    oidc_issuer: WebUrl = _at(
        "dashboard.oidc.issuer",
        "",
        "Issuer of the OpenID Connect provider with which users sign in, such as https://login.example.com; empty: "
        "none. Needs OIDC_CLIENT_ID, OIDC_ROLES and DASHBOARD_URL.",
        pattern=r"^(https://\S+|http://(localhost|127\.0\.0\.1|\[::1\])([:/]\S*)?)?$",
    )
    oidc_client_id: str = _at("dashboard.oidc.client_id", "", "Client id of the dashboard at this provider.")
    oidc_client_secret: str = _at(
        "dashboard.oidc.client_secret", "", "Client secret of the dashboard at this provider; empty: a public client."
    )
    oidc_scopes: Names = _at("dashboard.oidc.scopes", ("openid", "profile", "email"), "Scopes to request.")
    oidc_name_claim: str = _at(
        "dashboard.oidc.name_claim",
        "email",
        "Claim with the user name that pages and the audit record show; sub is used if an account lacks this claim.",
    )
    oidc_roles_claim: str = _at(
        "dashboard.oidc.roles_claim",
        "groups",
        "Claim whose values determine the role, in the ID token or the user info; a dot leads to a nested claim, such "
        "as realm_access.roles.",
    )
    oidc_roles: RolesByClaim = _at(
        "dashboard.oidc.roles",
        {},
        "Roles by values of this claim, such as queue-admins:admin, queue-team:operator; *:viewer applies to every "
        "account. The highest role applies; an account without a role is refused.",
    )
    dashboard_https: bool = _at(
        "dashboard.https", False, "Marks the dashboard's cookies Secure, for access over HTTPS through a proxy."
    )
    dashboard_proxy_user_header: str = _at(
        "dashboard.proxy_user_header",
        "",
        "Header in which a trusted proxy sends the name of the signed-in user; needs DASHBOARD_PROXY_SECRET.",
    )
    dashboard_proxy_secret: str = _at(
        "dashboard.proxy_secret",
        "",
        "Secret that a trusted proxy sends as X-Proxy-Secret with the user's name; at least 24 characters.",
        pattern=r"^(\S{24,})?$",
    )
    dashboard_proxy_role: Literal["viewer", "operator", "admin"] = _at(
        "dashboard.proxy_role",
        "viewer",
        "Role of users whom the proxy names and who are not in DASHBOARD_USERS or its file.",
    )
    dashboard_trusted_proxies: Names = _at(
        "dashboard.trusted_proxies",
        ("127.0.0.1", "::1"),
        "Addresses from which DASHBOARD_PROXY_USER_HEADER and X-Forwarded-Prefix are accepted.",
    )
    dashboard_redact: Names = _at(
        "dashboard.redact",
        (
            *("*password*", "*passwd*", "*secret*", "*token*", "*api_key*", "*api-key*", "*apikey*", "*card_number*"),
            *("*authorization*", "*cookie*"),
        ),
        "Fields whose values the dashboard hides in data and results, and gateways from personal API keys, by name or "
        "path (customer.iban); * matches any characters.",
    )
    dashboard_trace_url: str = _at(
        "dashboard.trace_url",
        "",
        "Address of a trace, such as http://localhost:16686/trace/{trace_id}; empty: this machine's Jaeger, if any.",
        pattern=r"^(https?://\S*\{trace_id\}\S*)?$",
    )
    dashboard_refresh: Seconds = _at("dashboard.refresh", 5, "Pause between refreshes of an open page.", ge=1, le=3600)

    # Logs, metrics, traces and webhooks
    app_version: str = _at(
        "app_version",
        "",
        "Version of the application, such as a git revision: shown with workers and attempts, in log lines and traces; "
        "empty: none.",
        pattern=r"^[A-Za-z0-9._+:/@-]{0,64}$",
    )
    log_level: LogLevel = _at("log.level", "INFO", "DEBUG, INFO, WARNING or ERROR.")
    log_format: LogFormat = _at("log.format", "auto", "json, text, or auto: text on a terminal, else json.")
    log_export: Literal["", "otlp"] = _at(
        "log.export",
        "",
        "otlp: log lines are also sent to the collector of OTEL_EXPORTER_OTLP_ENDPOINT (or its variant for logs).",
    )
    jaeger_host: Host = _at(
        "tracing.jaeger_host", "", "Host of Jaeger; empty: no traces unless OTEL_* variables are set."
    )
    prometheus_url: WebUrl = _at(
        "prometheus_url",
        "",
        "Address of Prometheus, which the doctor queries for its targets; empty: not queried.",
        pattern=r"^(https?://\S+)?$",
    )
    jaeger_port: Port = _at(
        "tracing.jaeger_port", 4318, "OTLP port of Jaeger; 6831, the old port of its agent, means 4318 (gRPC: 4317)."
    )
    trace_locally: bool = _at(
        "tracing.locally",
        False,
        "Traces tasks for the dashboard even without a collector; without one, at most ten per second.",
    )
    webhook_secrets: Secrets = _at(
        "webhooks.secrets",
        (),
        "Secrets for signing webhooks; each one adds a signature (whsec_ and base64, or at least 24 characters). "
        "Empty: webhooks are off.",
    )
    webhook_hosts: Names = _at(
        "webhooks.hosts", (), "Hosts that webhooks may call; *.example.com matches subdomains; empty: any."
    )
    webhook_ports: Ports = _at("webhooks.ports", (80, 443, 8080, 8443), "Ports that webhooks may call.")
    webhook_allow: HostsAndNetworks = _at(
        "webhooks.allow",
        (),
        "Internal hosts and networks (receiver, 10.1.0.0/16) that webhooks may call, on any port.",
    )
    http_task_hosts: Names = _at(
        "http_tasks.hosts",
        (),
        "Hosts that tasks of the type http may call; *.example.com matches subdomains, * any public host. Empty: there "
        "is no such type.",
    )
    http_task_ports: Ports = _at(
        "http_tasks.ports", (80, 443, 8080, 8443), "Ports that tasks of the type http may call."
    )
    http_task_allow: HostsAndNetworks = _at(
        "http_tasks.allow",
        (),
        "Internal hosts and networks (billing, 10.1.0.0/16) that tasks of the type http may call, on any port, if "
        "HTTP_TASK_HOSTS has the host.",
    )
    # Alerts
    alert_webhook_url: str = _at(
        "alerts.webhook_url",
        "",
        "Incoming webhook of Slack, or of a chat that accepts the same JSON, to which alerts are sent; WEBHOOK_HOSTS, "
        "WEBHOOK_PORTS and WEBHOOK_ALLOW apply to it.",
    )
    alert_email_to: Names = _at("alerts.email_to", (), "Email addresses to which alerts are sent.")
    alert_email_from: str = _at(
        "alerts.email_from", "", "Sender address of these emails; empty: firmq at this machine's host name."
    )
    smtp_url: SmtpUrl = _at(
        "alerts.smtp_url",
        "",
        "Mail server for alerts: smtp://user:secret@host:587 (STARTTLS where the server offers it, always with a "
        "password) or smtps://host:465.",
    )
    alert_quiet_hours: QuietTime = _at(
        "alerts.quiet_hours",
        "",
        "Part of each day in which only alerts of the level danger are sent, such as 22:00-07:00 Europe/Berlin; "
        "warnings are sent afterwards if they still hold.",
    )
    alert_after: Seconds = _at(
        "alerts.after",
        60,
        "How long a condition must hold before its alert is sent, and be absent before it is reported as resolved.",
    )
    alert_waiting_time: Seconds = _at(
        "alerts.waiting_time",
        300,
        "Wait of the oldest task of a queue, or of a type that no live worker has, above which an alert is sent.",
        gt=0,
    )
    alert_dead_letters: int = _at(
        "alerts.dead_letters",
        1,
        "Number of dead letters of one type and cause within ten minutes from which an alert is sent.",
        ge=1,
    )
    alert_schedule_failures: int = _at(
        "alerts.schedule_failures",
        3,
        "Number of failed runs of a schedule in a row from which an alert is sent.",
        ge=1,
        le=30,
    )
    alert_redis_memory: float = _at(
        "alerts.redis_memory",
        0.75,
        "Share of maxmemory in use above which an alert is sent; above 0.9 its level is danger.",
        gt=0,
        le=1,
    )
    dashboard_url: str = _at(
        "dashboard.url",
        "",
        "Address at which users open the dashboard, such as https://queue.example.com; alerts link to it, and the "
        "identity provider redirects to it.",
        pattern=r"^(/|https?://[^/\s?#]+(/[^\s?#]*)?)?$",
    )

    metrics_sources: WebAddresses = _at(
        "gateway.metrics_sources",
        (),
        "Addresses of other parts, host:port, whose metrics the gateway's /metrics includes; for a name with several "
        "addresses, all of them.",
    )

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
        self._check_partitions()
        self._check_alerts()
        self._check_identity_provider()
        self._check_rq()
        self.declared_schedules()
        self.declared_limits()
        return self

    def _check_partitions(self) -> None:
        if self.redis_url and self.redis_partitions:
            raise ValueError("REDIS_URL and REDIS_PARTITIONS are both set: name all servers in REDIS_PARTITIONS")
        stores = [without_password(each.store_url) for each in self.partitions.values()]
        if double := next((each for at, each in enumerate(stores) if each in stores[:at]), None):
            raise ValueError(
                f"REDIS_PARTITIONS: {double} is named twice: a partition needs a server or key_prefix of its own"
            )

    def _check_rq(self) -> None:
        if self.rq_queues and not self.rq_allow:
            raise ValueError("RQ_QUEUES needs RQ_ALLOW: name the functions that jobs may call, such as shop.tasks.*")
        if self.rq_task_queues and not self.rq_calls:
            raise ValueError("RQ_TASK_QUEUES needs RQ_ALLOW with a first name without wildcards, such as shop.tasks.*")

    def _check_identity_provider(self) -> None:
        needed = ("oidc_client_id", "oidc_roles", "dashboard_url")
        if self.oidc_issuer and (missing := [name.upper() for name in needed if not getattr(self, name)]):
            raise ValueError(f"OIDC_ISSUER also needs {', '.join(missing)}")
        if "openid" not in self.oidc_scopes:
            raise ValueError("OIDC_SCOPES must contain openid")

    def _check_alerts(self) -> None:
        if bool(self.alert_email_to) != bool(self.smtp_url):
            raise ValueError("ALERT_EMAIL_TO and SMTP_URL are needed together: set both, or neither")
        if self.alert_webhook_url:
            try:
                self.egress_policy().read(self.alert_webhook_url)
            except ValueError as error:
                raise ValueError(f"ALERT_WEBHOOK_URL: {error}") from None

    def declared_limits(self) -> dict[str, Limit]:
        """Returns the declared limits by name. Raises ValueError with all mistakes."""
        limits: dict[str, Limit] = {}
        mistakes: list[str] = []
        for name, given in self.task_limits.items():
            try:
                limits[check_name(name)] = read_limit(given if isinstance(given, dict) else {"rate": given})
            except ValueError as error:
                mistakes.append(f"{name}: {error}")
        if mistakes:
            raise ValueError(f"TASK_LIMITS: {'; '.join(mistakes)}")
        return limits

    def declared_schedules(self) -> list[Schedule] | None:
        """Returns the declared schedules; None when the setting is absent. Raises ValueError with all mistakes."""
        if self.schedules is None:
            return None
        # Imported here because the cron parser is slow to import.
        from firmq.shared.domain.schedule import read_declared

        found, mistakes = [], []
        for name, entry in self.schedules.items():
            try:
                found.append(read_declared(name, entry, self.queues, self.default_priority, self.egress_policy()))
            except ValueError as error:
                mistakes.append(f"schedules.{name}: {error}")
        if mistakes:
            raise ValueError("\n".join(mistakes))
        return found

    def egress_policy(self) -> EgressPolicy:
        """Returns the policy for the URLs of webhooks."""
        return EgressPolicy.of(self.webhook_hosts, self.webhook_ports, self.webhook_allow)

    def http_task_policy(self) -> EgressPolicy | None:
        """Returns the policy for tasks of the type `http`; None when they are off."""
        if not self.http_task_hosts:
            return None
        return EgressPolicy.of(self.http_task_hosts, self.http_task_ports, self.http_task_allow, "HTTP_TASK")

    @property
    def handler_modules(self) -> tuple[str, ...]:
        """Returns the modules with the handlers of a worker."""
        http = ("firmq.worker.handlers.http_task",) if self.http_task_hosts else ()
        rq = ("firmq.worker.rq_jobs.handler",) if self.rq_queues else ()
        rq_task = ("firmq.worker.rq_jobs.rq_task",) if self.rq_calls else ()
        return (*self.task_modules, *http, *rq, *rq_task)

    @property
    def rq_calls(self) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
        """Returns the queues and functions of tasks of the type `rq`; None when they are off.

        A pattern such as `*.*` allows nothing here: all callers that submit tasks could call any function.
        """
        allow = tuple(each for each in self.rq_allow if not set("*?[") & set(each.partition(".")[0]))
        return (self.rq_task_queues, allow) if self.rq_task_queues and allow else None

    @property
    def adopted_queues(self) -> dict[str, str]:
        """Returns the queues of RQ_QUEUES, each with the queue of the tasks that are made of its jobs."""
        return {name: adopted_queue(name) for name in self.rq_queues}

    @property
    def rq_key_prefix(self) -> str:
        """Returns the prefix of the keys of RQ programs: that of the first partition, which has their jobs."""
        first = self.partitions.get(0)
        return key_prefix_of(first.store_url) if first else self.key_prefix

    def webhook_keys(self) -> tuple[bytes, ...]:
        """Returns the keys that sign webhooks."""
        return tuple(map(signing_key, self.webhook_secrets))

    @cached_property
    def partitions(self) -> Mapping[int, Settings]:
        """Returns the settings for each partition by its number; without REDIS_PARTITIONS, these are the only one's."""
        addresses = self.redis_partitions or partitions_of_cluster(self.redis_url, self.key_prefix)
        if not addresses:
            return {0: self}
        bound = self.max_queue_length and max(1, self.max_queue_length // sum(map(bool, addresses)))
        own = {**dict(self), "redis_partitions": (), "max_queue_length": bound}
        return {
            number: Settings.model_construct(**{**own, "redis_url": completed(url, partition=str(number))})
            for number, url in enumerate(addresses)
            if url
        }

    @property
    def is_partitioned(self) -> bool:
        """Returns whether there are partitions, be it one so far."""
        return next(iter(self.partitions.values())) is not self

    @property
    def store_url(self) -> str:
        """Returns the address of Redis, from REDIS_URL or host and port, with all options of the client.

        Raises ValueError where there are partitions: each of `partitions` has an address.
        """
        if self.is_partitioned:
            raise ValueError("these are the settings of several partitions, which have no common address")
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

    @property
    def retry_policy(self) -> RetryPolicy:
        """Returns the retry policy of a task that overrides nothing."""
        policy = RetryPolicy(
            max_retries=self.max_retries,
            initial_delay=self.initial_retry_delay,
            multiplier=self.retry_backoff_multiplier,
            max_delay=self.max_retry_delay,
            jitter=self.retry_jitter,
        )
        if not self.retry_pauses:
            return policy
        given = {"max_retries": self.max_retries} if "max_retries" in self.model_fields_set else {}
        return policy.override({"pauses": self.retry_pauses, **given})

    @property
    def executors(self) -> int:
        """Returns the number of executor processes of a worker."""
        available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        return self.worker_executors or available or 1

    @property
    def slots(self) -> int:
        """Returns how many tasks a concurrent executor runs at a time."""
        return self.executor_slots or (16 if "firmq.django.handlers" in self.task_modules else 100)

    @property
    def default_weight(self) -> int:
        """Returns the weight of a queue that no setting names: that of the default priority."""
        return self.queues[self.default_priority]

    @cached_property
    def queue_selection(self) -> QueueSelection:
        """Returns the queues that a worker takes from."""
        strict = self.queue_order == "strict"
        bounded, beside = self.queue_executors, self.adopted_queues.values()
        return QueueSelection(self.worker_queues, self.queues, self.default_priority, strict, bounded, beside)

    @property
    def claimed_queue_executors(self) -> dict[str, int]:
        """Returns the maximum executors of each claimed queue that QUEUE_EXECUTORS limits."""
        return {name: most for name, most in self.queue_executors.items() if self.queue_selection.takes(name)}

    @property
    def instance_id(self) -> str:
        """Returns the name of this housekeeper: the setting, else host name (in Kubernetes: pod) and process id."""
        return self.housekeeper_distributed_execution_instance_id or f"{socket.gethostname()}-{os.getpid()}"

    def lease(self) -> timedelta:
        return timedelta(seconds=self.lease_time)


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
    """Returns NAME_FILE and what the file holds, as Docker's secrets are given; nothing without that variable."""
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
    hidden = re.search("password|url|partitions|secret|api_keys|users|database|schedules", location[0])
    shown = "" if hidden or "://" in given or "@" in given else f", got {given}"
    return f"{name}{inner}: {text}{shown}"


def _place(path: str, word: str, places: Mapping[str, str]) -> str:
    """Returns the beginning of a message about a part of the YAML file, with its line if it is known."""
    if (inner := places.get(f"{path}.{word}")) is not None:
        return inner
    return f"{places.get(path, path)}: {word}"
