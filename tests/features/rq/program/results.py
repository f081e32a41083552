"""What RQ's page on results shows."""

from __future__ import annotations

from typing import Any

from rq.exceptions import NoSuchJobError
from rq.job import Job

from tests.features.rq.program.rows import FAILED, FINISHED, Program, feature
from tests.support import rq_functions as shop


@feature("a job that fails: status, `latest_result()`, registry", [FAILED, "FAILED", True, True])
def failing(program: Program) -> object:
    found = program.queue.enqueue(shop.fail)
    status = program.end(found)
    latest = found.latest_result()
    listed = found.id in program.queue.failed_job_registry.get_job_ids()
    return [status, latest.type.name, "Refund: no stock" in latest.exc_string, listed]


@feature("`execution_id`, `execution_started_at`, `worker_name` of a result", [True, True, True])
def execution(program: Program) -> object:
    found = program.queue.enqueue(shop.add, 1, 2)
    program.end(found)
    latest: Any = found.latest_result()
    began, ended = latest.execution_started_at, latest.execution_ended_at
    return [
        bool(latest.execution_id),
        began <= ended,
        latest.worker_name == found.worker_name or bool(latest.worker_name),
    ]


@feature("`latest_result(timeout=...)` waits for the result", 5)
def waiting(program: Program) -> object:
    latest = program.queue.enqueue(shop.add_slowly, 2, 3).latest_result(timeout=30)
    return latest and latest.return_value


@feature("`job.results()`, the earlier results too", ["SUCCESSFUL", "FAILED"])
def history(program: Program) -> object:
    found = program.queue.enqueue(shop.fail_times, "rq:program:history", 1)
    program.end(found)
    found.requeue()
    program.end(found, FINISHED)
    return [each.type.name for each in found.results()]


@feature("`result_ttl`, `failure_ttl`", [True, True])
def time_to_live(program: Program) -> object:
    good = program.queue.enqueue(shop.add, 1, 1, result_ttl=900)
    bad = program.queue.enqueue(shop.fail, failure_ttl=800)
    program.end(good)
    program.end(bad)
    kept = [program.seen(lambda each=each: program.redis.ttl(each.key) > 0) for each in (good, bad)]  # type: ignore[misc]
    return [kept[0] and 700 < program.redis.ttl(good.key) <= 900, kept[1] and 600 < program.redis.ttl(bad.key) <= 800]


@feature("`result_ttl=0`", 0)
def no_result(program: Program) -> object:
    found = program.queue.enqueue(shop.note, "rq:program:kept", "x", result_ttl=0)
    program.seen(lambda: not program.redis.exists(found.key))
    return program.redis.exists(found.key)


@feature("`result_ttl=-1`", [FINISHED, -1])
def kept_forever(program: Program) -> object:
    found = program.queue.enqueue(shop.add, 1, 1, result_ttl=-1)
    return [program.end(found), program.redis.ttl(found.key)]


@feature("a result that cannot be pickled", [FINISHED, "Unserializable return value"])
def not_picklable(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.no_result))


@feature("a returned `Retry`", [FINISHED, "twice"])
def returned_retry(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.try_again, "rq:program:again"))


@feature("a `Retry` that is returned too often", [FAILED, "MAX_RETRIES_EXCEEDED"])
def returned_too_often(program: Program) -> object:
    found = program.queue.enqueue(shop.try_again_always)
    return [program.end(found, FAILED), found.latest_result().type.name]


@feature(
    "a job whose process dies once",
    [FINISHED, "survived"],
    differs="it runs again, where RQ fails it, or loses it with its worker",
)
def killed_once(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.kill_once, "rq:program:killed"))


@feature(
    "a job whose process always dies",
    [FAILED, True],
    differs="it fails after `MAX_CRASHES` processes; its task becomes a dead letter",
)
def killed(program: Program) -> object:
    found = program.queue.enqueue(shop.kill)
    return [program.end(found), "killed" in found.latest_result().exc_string.lower()]


@feature("`job.delete()` of a finished job", "gone")
def delete_finished(program: Program) -> object:
    found = program.queue.enqueue(shop.add, 1, 1)
    program.end(found)
    found.delete()
    try:
        return str(Job.fetch(found.id, connection=program.redis).get_status())
    except NoSuchJobError:
        return "gone"
