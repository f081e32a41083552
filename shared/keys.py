"""Every key in Redis: the map of the product.

Times in scores and fields are microseconds since 1970 by Redis' own clock unless a line says otherwise. "For ever"
means: until the task is removed, which the retention of its final state brings about. Queues are few (one per
priority). Scripts build the same names in `lua/_prelude.lua`; a test holds both files equal. Our keys and RQ's have
no common hash tag: one primary (with replicas, Sentinel) holds all of them; Redis Cluster is not supported.
"""

from __future__ import annotations

# --- RQ's own, written so that rq info, rq-dashboard and Job.fetch read a running system -------------------------


def rq_job(task_id: str) -> str:
    """hash, owner: every script; for ever. The record of a task: RQ's fields, and ours beside them.

    Ours: state, attempt, failures, crashes, losses, token, begun, due_at, expires_at, tags, retry, error, progress,
    cancel, and one `attempt:N` per attempt (JSON). RQ's that we rely on: data, origin, description (the type),
    timeout, meta, created_at, enqueued_at, started_at, ended_at, worker_name.
    """
    return f"rq:job:{task_id}"


RQ_QUEUES = "rq:queues"
"""set, owner: submit; for ever. The full key of every queue that ever held a task."""


def rq_queue(queue: str) -> str:
    """list, owner: submit, claim, promote; for ever. Tickets: ids that lead a worker to pending tasks.

    A ticket is only a hint. Whether the task may run is decided by `pending`, so a ticket too many is harmless and
    a ticket too few is put back by recovery.
    """
    return f"rq:queue:{queue}"


def rq_started(queue: str) -> str:
    """zset, owner: claim, report, reap. Members `id:token` with score +inf, which no stock tool ever cleans."""
    return f"rq:wip:{queue}"


def rq_scheduled(queue: str) -> str:
    """zset, owner: submit, report, promote. A copy of `scheduled` and `retrying` for RQ's tools, in seconds."""
    return f"rq:scheduled:{queue}"


def rq_deferred(queue: str) -> str:
    """zset, owner: submit. A copy of `blocked` for RQ's tools, in seconds."""
    return f"rq:deferred:{queue}"


def rq_finished(queue: str) -> str:
    """zset, owner: report, prune. Score: when the record goes, in seconds."""
    return f"rq:finished:{queue}"


def rq_failed(queue: str) -> str:
    """zset, owner: report, requeue, purge. Score: when the record goes, in seconds."""
    return f"rq:failed:{queue}"


def rq_canceled(queue: str) -> str:
    """zset, owner: cancel, expire, prune. Score: when the record goes, in seconds."""
    return f"rq:canceled:{queue}"


def rq_results(task_id: str) -> str:
    """stream, owner: report; for ever. RQ's results: the return value, or the traceback of the last failure."""
    return f"rq:results:{task_id}"


RQ_WORKERS = "rq:workers"
"""set, owner: workers. Keys of the live workers."""


def rq_workers(queue: str) -> str:
    """set, owner: workers. Keys of the live workers of one queue."""
    return f"rq:workers:{queue}"


def rq_worker(name: str) -> str:
    """hash, owner: the worker; expires a minute after its last heartbeat."""
    return f"rq:worker:{name}"


# --- Ours: the truth about where a task is ----------------------------------------------------------------------

TASKS = "taskqueue:tasks"
"""zset, owner: submit, remove; for ever. Every task by creation."""


def tasks_of_type(task_type: str) -> str:
    """zset, owner: submit, remove; for ever. The tasks of one type by creation."""
    return f"taskqueue:tasks:type:{task_type}"


def tasks_with_tag(tag: str) -> str:
    """zset, owner: submit, remove; for ever. The tasks that carry a tag by creation."""
    return f"taskqueue:tasks:tag:{tag}"


def pending(queue: str) -> str:
    """zset, owner: submit, promote, claim, cancel, expire, reap. Pending tasks by the moment they were enqueued."""
    return f"taskqueue:pending:{queue}"


def scheduled(queue: str) -> str:
    """zset, owner: submit, promote, cancel, expire. Tasks to run at a time, by that time."""
    return f"taskqueue:scheduled:{queue}"


def retrying(queue: str) -> str:
    """zset, owner: report, promote, cancel, expire. Tasks that wait for their next attempt, by its time."""
    return f"taskqueue:retrying:{queue}"


BLOCKED = "taskqueue:blocked"
"""zset, owner: submit. Tasks that wait for other tasks, by creation."""

LEASES = "taskqueue:leases"
"""zset, owner: claim, extend, report, release, reap. Running tasks by the end of their lease."""

DEADLINES = "taskqueue:deadlines"
"""zset, owner: submit, claim, report, expire. Waiting tasks that must have started by a moment, by that moment."""


def ended(state: str) -> str:
    """zset, owner: report, cancel, expire, requeue, prune. Ended tasks of one final state, by their end."""
    return f"taskqueue:{state}"


# --- Ours: how the parts meet -----------------------------------------------------------------------------------

BELL = "taskqueue:bell"
"""list, owner: submit, promote; at most 64 long. Each entry wakes one idle worker; losing one costs a second."""


def control(worker: str) -> str:
    """list, owner: cancel; an hour. Orders to one worker, such as `cancel ID`."""
    return f"taskqueue:control:{worker}"


def claim(worker: str) -> str:
    """string, owner: claim; a minute. The last claim, so that a command sent again gets the same answer."""
    return f"taskqueue:claim:{worker}"


PAUSED = "taskqueue:paused"
"""hash, owner: queues; for ever. Paused queues: name to JSON with reason and time."""

TYPES = "taskqueue:types"
"""hash, owner: workers; for ever. Registered task types: name to JSON with the schema of their data."""

WORKERS = "taskqueue:workers"
"""zset, owner: workers. Live workers by their last heartbeat; dead ones are dropped by the timeout job."""


def worker(name: str) -> str:
    """string (JSON), owner: the worker; a minute after its last heartbeat. What it is doing."""
    return f"taskqueue:worker:{name}"


def throughput(minute: int) -> str:
    """hash, owner: submit, report, reap; two hours. Counts of one minute since 1970: submitted, completed, ..."""
    return f"taskqueue:throughput:{minute}"


RECOVERY_CURSOR = "taskqueue:recovery"
"""hash, owner: recover; for ever. Where the slow walk over all tasks stands."""
