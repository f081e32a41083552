"""The address of Redis, and its use by the parts."""

from __future__ import annotations

from firmq.shared.config.groups.group import Group, at
from firmq.shared.config.values import Host, KeyPrefix, Port, ReadableFile, RedisUrl, Seconds


class RedisSettings(Group):
    """The address of Redis, and its use by the parts."""

    redis_url: RedisUrl = at(
        "redis.url",
        "",
        "Address of Redis: redis://, rediss:// (TLS), unix://, redis+sentinel:// or redis+cluster://; overrides "
        "REDIS_HOST and REDIS_PORT.",
    )
    redis_host: Host = at("redis.host", "127.0.0.1", "Host of Redis.")
    redis_port: Port = at("redis.port", 6379, "Port of Redis.")
    redis_database: int = at(
        "redis.database",
        0,
        "Number of the Redis database, unless the address has one; a cluster has only 0.",
        ge=0,
        le=10_000,
    )
    redis_username: str = at("redis.username", "", "Redis user (ACL), unless the address names one.")
    redis_password: str = at("redis.password", "", "Redis password, unless the address has one.")
    redis_sentinel_username: str = at("redis.sentinel_username", "", "User of the sentinels, if they require one.")
    redis_sentinel_password: str = at("redis.sentinel_password", "", "Password of the sentinels, if they require one.")
    redis_ca_file: ReadableFile = at(
        "redis.ca_file", "", "CA file that verifies the certificate of Redis; empty: the system's authorities."
    )
    redis_cert_file: ReadableFile = at("redis.cert_file", "", "Client certificate for Redis, if it requires one.")
    key_prefix: KeyPrefix = at(
        "redis.key_prefix",
        "",
        "Prefix of all keys and channels in Redis, such as shop, for systems that share one Redis; the same for all "
        "parts of a system.",
    )
    redis_timeout: Seconds = at(
        "redis.timeout",
        0.9,
        "How long gateway and dashboard wait for a connection to Redis and for each reply; housekeepers and workers "
        "wait at least 2 s, a worker at most a fifth of a lease.",
        ge=0.7,
        le=60,
    )
    redis_retries: int = at(
        "redis.retries",
        1,
        "How often gateway, dashboard and housekeepers resend a Redis command after its connection broke.",
        ge=0,
        le=10,
    )
    redis_retry_interval: Seconds = at(
        "redis.retry_interval", 0, "Pause before each of the REDIS_RETRIES.", ge=0, le=10
    )
    redis_max_connections: int = at(
        "redis.max_connections",
        0,
        "Maximum connections to Redis per process of gateway or dashboard; a request waits for a free one as long as "
        "for a reply. 0: one for each thread that needs one.",
        ge=0,
        le=10_000,
    )
    submit_replicas: int = at(
        "redis.submit_replicas",
        0,
        "Replicas of Redis that must have a task before it is accepted; 0: the primary is enough.",
        ge=0,
        le=16,
    )
    confirm_writes: bool = at(
        "redis.confirm_writes",
        True,
        "Responses wait until Redis has written the change to its append-only file, so that kill -9 of Redis loses "
        "no accepted task; false: only until it is in the memory of Redis.",
    )
    redis_key_file: ReadableFile = at("redis.key_file", "", "Private key of the client certificate.")
