"""The adopter beside a worker that runs jobs of RQ programs, and the job that enqueues rq-scheduler's entries."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING

from firmq.shared.config.redis_address import key_prefix_of
from firmq.shared.config.settings import Settings, exit_with
from firmq.shared.features.rq.settings import RqSettings
from firmq.shared.redis.client import connect
from firmq.shared.redis.scripts import Scripts
from firmq.worker.feature import Beside, Feature, Services

if TYPE_CHECKING:
    from firmq.worker.features.rq.adopter import Adopter
    from firmq.worker.features.rq.rq_scheduler import RqScheduler

log = logging.getLogger(__name__)


def rq_key_prefix(settings: Settings) -> str:
    """Returns the prefix of the keys of RQ programs: that of the first Redis, where their jobs are."""
    first = settings.stores.get(0)
    return key_prefix_of(first.store_url) if first else settings.key_prefix


def _prepare(settings: Settings) -> None:
    own = RqSettings.of(settings)
    if own.rq_calls and len(settings.stores) > 1:
        exit_with("RQ_TASK_QUEUES works with one Redis only, and this system has several: unset it")
    if own.rq_queues or own.rq_calls:
        from firmq.worker.features.rq.key_prefix import name_rq_keys

        name_rq_keys(rq_key_prefix(settings))


def _start_adopter(worker: Beside) -> Adopter | None:
    settings, own = worker.settings, RqSettings.of(worker.settings)
    if not own.rq_queues:
        return None
    if 0 not in settings.stores:
        exit_with(
            "RQ_QUEUES needs the first Redis, in which RQ programs have their jobs: the list of addresses has none"
        )
    from firmq.worker.features.rq.adopter import Adopter
    from firmq.worker.features.rq.terms import Terms

    scripts = Scripts(connect(settings.stores[0].store_url, name=f"rq-{worker.name}"))
    terms = Terms.of_environment()
    adopter = Adopter(scripts, RqSettings.queues_beside(own), worker.draining, terms, settings.executors)
    adopter.start()
    log.info("jobs of the RQ queues %s are run if they match %s", *map(", ".join, (own.rq_queues, own.rq_allow)))
    return adopter


def _jobs(services: Services) -> list[RqScheduler]:
    """Returns the job that enqueues rq-scheduler's entries, where jobs of RQ programs run: in store 0."""
    settings = RqSettings.of(services.settings)
    if not settings.rq_queues or (services.place and services.place.number):
        return []
    from firmq.worker.features.rq.rq_scheduler import RqScheduler
    from firmq.worker.features.rq.scheduler_entries import SchedulerEntries

    interval = timedelta(seconds=services.settings.housekeeper_schedules_interval)
    return [RqScheduler(SchedulerEntries(services.scripts, settings.rq_queues), interval)]


FEATURE = Feature(jobs=_jobs, prepare=_prepare, beside=_start_adopter)
