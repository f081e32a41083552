"""`firmq rq-import`: turns rq-scheduler's entries into schedules; without `--yes` it only lists them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from firmq.shared.config.settings import load_or_exit
from firmq.shared.domain import strict_json
from firmq.shared.domain.schedule import Schedule, following
from firmq.shared.domain.task import RQ_TYPE
from firmq.shared.redis.client import connect, text
from firmq.shared.redis.scripts import Scripts
from firmq.shared.stores.schedules import ScheduleStore
from firmq.shared.stores.task_types import TaskTypes
from firmq.shared.submission.type_cache import TypeCache
from firmq.worker.features.rq.allowed import Allowed, inflated

ZONE_HINT = "set TZ to the zone of its program, such as Europe/Berlin"


def main(yes: bool) -> int:
    """Prints the outcome of each entry; returns 1 when some cannot become a schedule."""
    settings, left = load_or_exit(), 0
    with connect(settings.stores[0].store_url, name="rq-import") as redis:
        store, types = ScheduleStore(Scripts(redis)), TypeCache(TaskTypes(redis))
        for member, score in redis.zrange(store.scripts.keys.RQ_SCHEDULER_ENTRIES, 0, -1, withscores=True):
            job, at = text(member), datetime.fromtimestamp(score, UTC)
            try:
                schedule = _schedule(job, redis.hgetall(store.scripts.keys.rq_job(job)), at, types, settings)
                if yes:
                    store.put(schedule, expected="", entry=(job, score))
            except Exception as error:  # a program's own meta, too
                left += 1
                print(f"{job}: not imported: {error}")
            else:
                what = f"{schedule.type} {schedule.data}, {schedule.when}, next {at.isoformat()}"
                print(f"{job}: {'imported' if yes else 'would become'} a schedule: {what}")
    if not yes:
        print("nothing was changed: --yes makes these schedules, and removes their entries")
    return int(left > 0)


def _schedule(job: str, record: Mapping[bytes, bytes], at: datetime, types: TypeCache, settings: Any) -> Schedule:
    """Returns the schedule of an entry. Raises an error with the reason why it cannot be one."""
    values, data = Allowed((), pickles=True), inflated(record.get(b"data", b""))
    name, instance, args, kwargs = values.serializer_of(data).loads(data)
    meta: Any = values.serializer_of(record[b"meta"]).loads(record[b"meta"]) if record.get(b"meta") else {}
    cron, interval = meta.get("cron_string"), meta.get("interval")
    # Its crontabs are in the zone of its own process, even with use_local_timezone: get_next_scheduled_time.
    zone = os.environ.get("TZ") or ("" if meta.get("use_local_timezone") else "UTC")
    others = (b"success_callback_name", b"failure_callback_name", b"dependency_ids")
    found = {
        "it has callbacks or dependencies": any(record.get(each, b"[]") not in (b"", b"[]") for each in others),
        "it calls a method": instance is not None,
        f"it names the queue class {meta.get('queue_class_name')}": meta.get("queue_class_name"),
        "it runs once": not cron and not interval,
        "its repetitions end": meta.get("repeat"),
        f"it is in local time: {ZONE_HINT}": cron and not zone,
    }
    if reasons := "; ".join(reason for reason, given in found.items() if given):
        raise ValueError(f"{reasons}. It stays, and a housekeeper with RQ_QUEUES runs it")
    kind = name if types.get(name) and not args else RQ_TYPE
    call = kwargs if kind == name else {"func": name, "args": args, "kwargs": kwargs, "queue": text(record[b"origin"])}
    types.check(kind, call)
    schedule = Schedule(
        name=job,
        type=kind,
        data=strict_json.dump(call),
        queue=types.queue_of(kind) or settings.default_priority,
        cron=cron,
        interval=int(interval) if interval else None,
        timezone=zone if cron else "UTC",
        timeout=float(record.get(b"timeout") or 0) or None,
    )
    if cron and (ours := following(schedule, at - timedelta(seconds=1))) != at:
        raise ValueError(f"{cron} ({zone}) means {ours} here, and {at} in rq-scheduler: {ZONE_HINT}")
    return schedule
