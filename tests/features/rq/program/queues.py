"""Queues, dependencies and callbacks: what RQ's overview shows."""

from __future__ import annotations

import socket
import subprocess
import sys
from argparse import Namespace
from datetime import date, timedelta
from importlib import import_module
from typing import Any

from rq import Callback, Queue
from rq.decorators import job
from rq.exceptions import DuplicateJobError
from rq.group import Group
from rq.job import Dependency, Job
from rq.webhook import Webhook

from tests.features.rq.program.rows import FAILED, FINISHED, OTHER_QUEUE, QUEUE, QUIET_QUEUE, Program, feature
from tests.support import rq_functions as shop

_SUMS = [[FINISHED, 3], [FINISHED, 7]]


def _prepared() -> list[Any]:
    return [Queue.prepare_data(shop.add, (1, 2)), Queue.prepare_data(shop.add, (3, 4))]


@feature("`queue.enqueue(f, ...)`, `job.return_value()`", [FINISHED, 5])
def enqueue(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.add, 2, b=3))


@feature("a function by its name, `queue.enqueue('module.f')`", [FINISHED, 5])
def by_name(program: Program) -> object:
    return program.result(program.queue.enqueue("operator.add", 2, 3))


@feature("`@job`, `f.delay(...)`", [FINISHED, 14])
def delay(program: Program) -> object:
    return program.result(job(QUEUE, connection=program.redis)(shop.double).delay(7))


@feature("`async def` functions", [FINISHED, 5])
def coroutine(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.add_soon, 2, 3))


@feature("methods of pickled objects", [FINISHED, 21])
def method(program: Program) -> object:
    return program.result(program.queue.enqueue(shop.Order(7).total, 3))


@feature("pickled arguments and results", [FINISHED, "2026-11-24"])
def values(program: Program) -> object:
    status, result = program.result(program.queue.enqueue(shop.tomorrow, date(2026, 11, 23)))
    return [status, str(result)]


@feature("several queues, and queues by any name", _SUMS)
def several_queues(program: Program) -> object:
    other = Queue(OTHER_QUEUE, connection=program.redis)
    jobs = [program.queue.enqueue(shop.add, 1, 2), other.enqueue(shop.add, 3, 4)]
    return [program.result(each) for each in jobs]


@feature("`args=`, `kwargs=` beside RQ's own arguments", [FINISHED, ["of the function", 15], "of the job"])
def own_arguments(program: Program) -> object:
    found = program.queue.enqueue(
        shop.described, ttl=90, description="of the job", kwargs={"description": "of the function", "ttl": 15}
    )
    return [*program.result(found), Job.fetch(found.id, connection=program.redis).description]


@feature("`at_front`", True)
def at_front(program: Program) -> object:
    with program.redis.pipeline() as pipeline:
        for number in range(20):
            program.queue.enqueue(shop.note_slowly, "rq:program:front", 0.02, f"{number}", pipeline=pipeline)
        program.queue.enqueue(shop.note_slowly, "rq:program:front", 0.02, "front", at_front=True, pipeline=pipeline)
        pipeline.execute()
    program.seen(lambda: program.redis.llen("rq:program:front") == 21)
    return program.noted("rq:program:front").index("front") < 10


@feature("`enqueue_many`, also with a pipeline", [*_SUMS, *_SUMS])
def many(program: Program) -> object:
    with program.redis.pipeline() as pipeline:
        jobs = program.queue.enqueue_many(_prepared(), pipeline=pipeline)
        pipeline.execute()
    return [program.result(each) for each in (*program.queue.enqueue_many(_prepared()), *jobs)]


@feature("`Group`, `Group.fetch`, `group.get_jobs()`", [*_SUMS, 2])
def group(program: Program) -> object:
    found = Group.create(connection=program.redis)
    jobs = found.enqueue_many(queue=program.queue, job_datas=_prepared())
    ends: list[object] = sorted((program.result(each) for each in jobs), key=str)
    return [*ends, len(Group.fetch(found.name, connection=program.redis).get_jobs())]


@feature("`unique=True`", [FINISHED, "refused by RQ", FINISHED])
def unique(program: Program) -> object:
    found = program.queue.enqueue(shop.add, 1, 1, job_id="welcome-7", unique=True)
    first = program.end(found)
    try:
        program.queue.enqueue(shop.add, 1, 1, job_id="welcome-7", unique=True)
        second = "enqueued"
    except DuplicateJobError:
        second = "refused by RQ"
    found.delete()
    return [first, second, program.end(program.queue.enqueue(shop.add, 1, 1, job_id="welcome-7", unique=True))]


def _one_of(key: str) -> Any:
    """Returns a limit that lets one job of a key run at a time; only RQ 3 has the class."""
    return import_module("rq.rate_limit").RateLimit(key=key, concurrency=1)


def _limited(program: Program, key: str, *more: Any, function: Any = shop.alone, **options: Any) -> Any:
    return program.queue.enqueue(function, *more, rate_limit=_one_of(key), **options)


@feature("`rate_limit=RateLimit(key, concurrency)`", ["queued", "rate_limited", [[FINISHED, 1]] * 4], since="3.0")
def rate_limit(program: Program) -> object:
    jobs = [_limited(program, "reports", "rq:program:alone") for _ in range(4)]
    first, second = (str(each.get_status(refresh=False).value) for each in jobs[:2])
    return [first, second, [program.result(each) for each in jobs]]


@feature("`rate_limit` after `enqueue_in`, without an RQ scheduler", [[FINISHED, 1]] * 3, since="3.0")
def rate_limit_later(program: Program) -> object:
    later = timedelta(seconds=1)
    limit = _one_of("late-reports")
    jobs = [program.queue.enqueue_in(later, shop.alone, "rq:program:late", rate_limit=limit) for _ in range(3)]
    return [program.result(each) for each in jobs]


@feature("`rate_limit` with `depends_on`", [[FINISHED, 1]] * 2, since="3.0")
def rate_limit_dependents(program: Program) -> object:
    parent = program.queue.enqueue_in(timedelta(seconds=1), shop.add, 1, 1)
    jobs = [_limited(program, "child-reports", "rq:program:children", depends_on=parent) for _ in range(2)]
    return [program.result(each) for each in jobs]


@feature(
    "the slot of a job that fails, is cancelled, or whose process dies",
    [FAILED, "canceled", FAILED, FINISHED],
    since="3.0",
)
def slots(program: Program) -> object:
    failing = _limited(program, "slots", function=shop.fail)
    cancelled = _limited(program, "slots", "rq:program:slots")
    cancelled.cancel()
    dying = _limited(program, "slots", function=shop.kill)
    last = _limited(program, "slots", "rq:program:slots")
    return [program.end(each) for each in (failing, cancelled, dying, last)]


@feature("`depends_on`, the results of dependencies", ["deferred", FINISHED, 5])
def dependency(program: Program) -> object:
    with program.until_then() as file:
        slow = program.queue.enqueue(shop.until_there, file)
        parent = program.queue.enqueue(shop.add, 2, 3, depends_on=slow)
        child = program.queue.enqueue(shop.parent_result, depends_on=parent)
        status = program.status(child)
    return [status, *program.result(child)]


@feature("several dependencies, `depends_on=[a, b]`", [FINISHED, 2])
def dependencies(program: Program) -> object:
    soon = program.queue.enqueue(shop.add, 1, 1)
    later = program.queue.enqueue_in(timedelta(seconds=1), shop.add, 1, 1)
    return program.result(program.queue.enqueue(shop.count_dependencies, depends_on=[soon, later]))


@feature("dependents in another queue", [FINISHED, 5])
def other_queue(program: Program) -> object:
    parent = program.queue.enqueue(shop.add, 2, 3)
    other = Queue(OTHER_QUEUE, connection=program.redis)
    return program.result(other.enqueue(shop.parent_result, depends_on=parent))


@feature("dependents of a job that fails stay deferred", [FAILED, "deferred"])
def after_plain_failure(program: Program) -> object:
    parent = program.queue.enqueue_in(timedelta(seconds=1), shop.fail)
    child = program.queue.enqueue(shop.add, 1, 1, depends_on=parent)
    return [program.end(parent), program.status(child)]


@feature("`Dependency(allow_failure=True, enqueue_at_front=True)`", [FINISHED, 2])
def after_failure(program: Program) -> object:
    parent = program.queue.enqueue(shop.fail)
    depends_on = Dependency([parent], allow_failure=True, enqueue_at_front=True)
    return program.result(program.queue.enqueue(shop.add, 1, 1, depends_on=depends_on))


@feature("`on_success`, `on_failure`", [["success 5"], ["failure Refund no stock"]])
def callbacks(program: Program) -> object:
    good = program.queue.enqueue(shop.add, 2, 3, on_success=Callback(shop.succeeded))
    bad = program.queue.enqueue(shop.fail, on_failure=Callback(shop.failed))
    program.end(good)
    program.end(bad)
    return [program.called(good), program.called(bad)]


@feature("`Callback('module.f', timeout=10)`, before the dependents", [["success 5"], FINISHED])
def named_callback(program: Program) -> object:
    parent = program.queue.enqueue(
        shop.add, 2, 3, on_success=Callback("tests.support.rq_functions.succeeded", timeout=10)
    )
    child = program.queue.enqueue(shop.add, 1, 1, depends_on=parent)
    status = program.end(child)
    return [program.called(parent), status]


@feature("a failing `on_success`: the job fails, its dependents stay deferred", [FAILED, "deferred"])
def failing_callback(program: Program) -> object:
    parent = program.queue.enqueue_in(timedelta(seconds=1), shop.add, 1, 1, on_success=Callback(shop.fail_after))
    child = program.queue.enqueue(shop.add, 1, 1, depends_on=parent)
    return [program.end(parent), program.status(child)]


@feature("`rq enqueue`, on the command line", [FINISHED, 5])
def command_line(program: Program) -> object:
    command = [sys.executable, "-m", "rq.cli", "enqueue", "--url", program.url, "--queue", QUEUE]
    subprocess.run([*command, "--job-id", "by-hand", "operator.add", ":2", ":3"], check=True, capture_output=True)
    return program.result(Job.fetch("by-hand", connection=program.redis))


@feature("`Queue(is_async=False)`: the program runs the job itself", [FINISHED, 3])
def at_once(program: Program) -> object:
    queue = Queue(QUEUE, connection=program.redis, is_async=False)
    return program.result(queue.enqueue(shop.add, 1, 2))


@feature(
    "`len(queue)`, `queue.job_ids`, `job.get_position()`",
    ["queued", None],
    differs="up to 1,000 jobs that wait are adopted ahead: they keep the status `queued`, and have no position",
)
def position(program: Program) -> object:
    with program.behind_others("positioned") as waiting:
        return [program.status(waiting), waiting.get_position()]


@feature(
    "`queue.empty()`, `rq empty`",
    FINISHED,
    differs="removes the jobs that wait in RQ's list; those that are adopted run",
)
def empty(program: Program) -> object:
    quiet: Any = Queue(QUIET_QUEUE, connection=program.redis)
    with program.behind_others("kept", QUIET_QUEUE) as waiting:
        quiet.empty()
    return program.end(waiting)


@feature("`webhooks=`", [FINISHED, False], differs="not sent: use `on_success` and `on_failure`, or webhooks of Firmq")
def webhooks(program: Program) -> object:
    with socket.create_server(("127.0.0.1", 0)) as receiver:
        hook = Webhook(f"http://127.0.0.1:{receiver.getsockname()[1]}/", "finished", timeout=1)
        ended = program.end(program.queue.enqueue(shop.add, 1, 2, webhooks=[hook]))
        receiver.settimeout(0.5)
        try:
            receiver.accept()
        except TimeoutError:
            return [ended, False]
    return [ended, True]


@feature("a function that `RQ_ALLOW` does not match", [FAILED, True], refused="`os.getpid does not match RQ_ALLOW`")
def not_allowed(program: Program) -> object:
    return program.failure(program.queue.enqueue("os.getpid"), "os.getpid does not match RQ_ALLOW")


@feature(
    "a callback that `RQ_ALLOW` does not match",
    [FAILED, True],
    refused="`os.getpid does not match RQ_ALLOW`; the job is not run either",
)
def callback_not_allowed(program: Program) -> object:
    found = program.queue.enqueue(shop.add, 1, 1, on_success=Callback("os.getpid"))
    return program.failure(found, "os.getpid does not match RQ_ALLOW")


@feature(
    "an argument of a class that `RQ_ALLOW` does not match",
    [FAILED, True],
    refused="`argparse.Namespace does not match RQ_ALLOW`; nothing in the pickle is executed",
)
def argument_not_allowed(program: Program) -> object:
    return program.failure(
        program.queue.enqueue(shop.add, Namespace(), 1), "argparse.Namespace does not match RQ_ALLOW"
    )


@feature(
    "a method of an object that is false, such as an empty `dict`",
    [FAILED, True],
    refused="`its instance is empty`; RQ itself would call a builtin function",
)
def empty_instance(program: Program) -> object:
    return program.failure(program.queue.enqueue(shop.CART.count), "its instance is empty")
