"""Checks for conflicts with workers that run jobs of RQ programs: RQ's workers, schedulers, other versions."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from firmq.shared.conditions.findings import Finding, doubtful, fine, listed
from firmq.shared.redis.client import keys_of, text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from redis import Redis

    from firmq.shared.conditions.observation import Observation
    from firmq.shared.config.settings import Settings
    from firmq.shared.stores.workers import WorkerInfo

MOST = 200
"""Workers of RQ, and entries of rq-scheduler, that are looked at."""


def check_rq_programs(redis: Redis, settings: Settings, now: Observation) -> list[Finding]:
    """Returns the findings about RQ; none where neither this system nor RQ runs jobs of RQ programs."""
    adopting = [each for each in now.workers if each.rq_queues]
    adopted = {queue for each in adopting for queue in each.rq_queues or ()}
    ours = {each.name for each in (*now.workers, *now.lost_workers)} | set(now.unreadable_workers)
    strangers = _rq_workers(redis, ours)
    stop = "a job that an RQ worker takes is lost or fails if that worker is killed: stop the RQ workers"
    exclude = "they run no task, and delay those that they take: start them without these queues"
    findings = [
        *_served(strangers, adopted, ", as workers of this system do", stop),
        *_served(strangers, {queue.name for queue in now.queues} - adopted, " of this system", exclude),
        *_both_fire(redis),
        *_unequal(adopting),
    ]
    if not findings and adopting:
        workers = _named("worker", [each.name for each in adopting], "runs", "run")
        return [fine("rq programs", f"{workers} jobs of {listed(adopted)}")]
    return findings


def _rq_workers(redis: Redis, ours: set[str]) -> dict[str, list[str]]:
    """Returns the queues of RQ's own live workers."""
    keys = keys_of(redis)
    prefix = keys.rq_worker("")
    names = [text(each).removeprefix(prefix) for each in redis.srandmember(keys.RQ_WORKERS, MOST) or []]
    strangers = sorted(set(names) - ours)
    with redis.pipeline(transaction=False) as pipeline:
        for name in strangers:
            pipeline.hmget(keys.rq_worker(name), "queues", "death")
        records = pipeline.execute()
    return {
        name: text(served).split(",")
        for name, (served, death) in zip(strangers, records, strict=True)
        if served and not death
    }


def _served(strangers: Mapping[str, Sequence[str]], queues: set[str], whose: str, advice: str) -> list[Finding]:
    """Returns a finding when RQ's own workers serve some of these queues."""
    by_queues: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for name, served in strangers.items():
        if common := tuple(sorted(queues & set(served))):
            by_queues[common].append(name)
    seen = "; ".join(
        f"{_named('RQ worker', names, 'serves', 'serve')} {_named('queue', common)}"
        for common, names in by_queues.items()
    )
    return [doubtful("rq workers", f"{seen}{whose}", advice)] if seen else []


def _both_fire(redis: Redis) -> list[Finding]:
    """Returns a finding when entries of rq-scheduler exist that `firmq rq-import` has made schedules of."""
    keys = keys_of(redis)
    theirs = [text(each) for each in redis.zrange(keys.RQ_SCHEDULER_ENTRIES, 0, MOST - 1)]
    found = redis.zmscore(keys.SCHEDULES, theirs) if theirs else []
    if not (both := [name for name, there in zip(theirs, found, strict=True) if there is not None]):
        return []
    advice = "each runs twice: run firmq rq-import --yes, and let no program create these entries again"
    return [doubtful("rq schedules", f"in rq-scheduler and here: {listed(both)}", advice)]


def _unequal(adopting: Sequence[WorkerInfo]) -> list[Finding]:
    """Returns a finding when workers that serve the same queue have other versions of RQ."""
    for queue in sorted({queue for each in adopting for queue in each.rq_queues or ()}):
        versions: dict[str, list[str]] = defaultdict(list)
        for each in adopting:
            if queue in (each.rq_queues or ()):
                versions[each.version.partition(".")[0]].append(each.name)
        if len(versions) > 1:
            said = "; ".join(
                f"{_named('worker', names, 'has', 'have')} RQ {version}" for version, names in versions.items()
            )
            advice = f"install the same RQ for all of them: any of them runs the jobs of queue {queue}"
            return [doubtful("rq programs", said, advice)]
    return []


def _named(noun: str, names: Sequence[str], *verbs: str) -> str:
    """Returns "RQ worker a serves", or "RQ workers a, b serve"."""
    verb = f" {verbs[len(names) > 1]}" if verbs else ""
    return f"{noun}{'s' if len(names) > 1 else ''} {listed(names)}{verb}"
