"""Runs all checks in order; those that need Redis are skipped while it is unavailable."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redis.exceptions import RedisError

from firmq.shared.conditions.findings import Finding, fine, wrong
from firmq.shared.config.redis_address import without_password
from firmq.shared.errors import FirmqError, StoreUnavailable
from firmq.shared.features.doctor import store, surroundings, system
from firmq.shared.redis.client import translated
from firmq.shared.redis.startup_check import info, refuse_old

if TYPE_CHECKING:
    from redis import Redis

    from firmq.shared.config.settings import Settings


def examine(settings: Settings, redis: Redis) -> list[Finding]:
    """Returns the findings of all checks in reading order; takes a few seconds at most."""
    findings = surroundings.check_settings(settings)
    where = without_password(settings.store_url)
    try:
        with translated():
            said = info(redis)
            redis.ping()
            findings.append(fine("redis", f"Redis at {where} answers"))
            refuse_old(said)
            findings += store.check_info(said, settings)
            findings += store.check_time(redis)
            findings += system.check(redis, settings)
    except (StoreUnavailable, FirmqError) as error:
        findings.append(wrong("redis", f"{error} ({where})", "no part works without Redis: fix this first"))
    except RedisError as error:
        findings.append(wrong("redis", f"a command to Redis failed: {error}", "check the log of Redis"))
    return [*findings, *surroundings.check_jaeger(settings), *surroundings.check_prometheus(settings)]
