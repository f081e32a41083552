"""The stores that pages read and actions change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from taskqueue.shared.redis.scripts import Scripts
from taskqueue.shared.stores.audit import Audit
from taskqueue.shared.stores.batches import Batches
from taskqueue.shared.stores.bulk_actions import BulkActions
from taskqueue.shared.stores.dead_letters import DeadLetters
from taskqueue.shared.stores.failure_groups import FailureGroups
from taskqueue.shared.stores.limits import Limits
from taskqueue.shared.stores.locks import LockAdmin
from taskqueue.shared.stores.queues import Queues
from taskqueue.shared.stores.schedules import ScheduleStore
from taskqueue.shared.stores.task_types import TaskTypes
from taskqueue.shared.stores.tasks import Records
from taskqueue.shared.stores.workers import Workers

if TYPE_CHECKING:
    from redis import Redis

    from taskqueue.shared.config.settings import Settings
    from taskqueue.shared.observability.tracing import Tracing


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """All stores, on one Redis client."""

    redis: Redis
    audit: Audit
    batches: Batches
    bulk_actions: BulkActions
    dead_letters: DeadLetters
    failure_groups: FailureGroups
    limits: Limits
    locks: LockAdmin
    queues: Queues
    schedules: ScheduleStore
    tasks: Records
    types: TaskTypes
    workers: Workers


def open_stores(settings: Settings, redis: Redis, tracing: Tracing) -> Stores:
    """Returns the stores; nothing is read yet."""
    scripts = Scripts(redis, confirm_writes=settings.confirm_writes)
    queues = Queues.of(scripts, settings)
    tasks = Records(scripts, queues.register)
    dead_letters = DeadLetters(scripts, tasks, tracing)
    return Stores(
        redis=redis,
        audit=Audit(redis),
        batches=Batches(scripts),
        bulk_actions=BulkActions(scripts, dead_letters),
        dead_letters=dead_letters,
        failure_groups=FailureGroups(scripts),
        limits=Limits(scripts),
        locks=LockAdmin(scripts),
        queues=queues,
        schedules=ScheduleStore(scripts),
        tasks=tasks,
        types=TaskTypes(redis),
        workers=Workers(redis, settings.lease()),
    )
