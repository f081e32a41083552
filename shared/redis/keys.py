"""Every key in Redis: the map of the product.

Times in scores and fields are microseconds since 1970 by Redis' own clock unless a line says otherwise. "For ever"
means: until the task is removed, which the retention of its final state brings about. Queues are few (one per
priority). Scripts build the same names in `_prelude.lua`; a test holds both files equal. Our keys and RQ's have
no common hash tag: one primary (with replicas, Sentinel) holds all of them; Redis Cluster is not supported.
"""

from __future__ import annotations

# --- RQ's own, written so that rq info, rq-dashboard and Job.fetch read a running system -------------------------


def rq_job(task_id: str) -> str:
    """hash, owner: every script; for ever. The record of a task: RQ's fields, and ours beside them.

    Ours: state, attempt, failures, crashes, losses, token, begun, due_at, expires_at, tags, retry, error, progress,
    time_limit, cancel, sent_back, unique, unique_until, unique_client, limit_key, fair_key, line (where it stands
    aside), refused (by which versions of the type), refusal (why), and one `attempt:N` per attempt (JSON). Of a task
    that is tied to others also links, children (how many), one `child:N` for each of these, parents (JSON),
    on_parent_failure, waits, batch, batch_index, after_batch; of one whose end is told outside webhook (JSON), told
    (which end) and deliveries (how many), and of each of these delivery_of and receiver (whose it is).
    RQ's that we rely on: status, data, origin, description (the type), timeout, meta, created_at, enqueued_at,
    started_at, ended_at, worker_name.
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
    """zset, owner: submit, claim. A copy of `blocked` (in seconds) and of `throttled` (+inf) for RQ's tools."""
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
    """stream, owner: report; for ever. RQ's results: the return value, or the tracebacks of the last ten failures."""
    return f"rq:results:{task_id}"


RQ_WORKERS = "rq:workers"
"""set, owner: workers. Keys of the live workers."""


def rq_workers(queue: str) -> str:
    """set, owner: workers. Keys of the live workers of one queue."""
    return f"rq:workers:{queue}"


def rq_worker(name: str) -> str:
    """hash, owner: the worker; expires a minute after its last heartbeat."""
    return f"rq:worker:{name}"


# --- Ours: what holds for all of it --------------------------------------------------------------------------------

FORMAT = "taskqueue:format"
"""string, owner: every new connection; for ever. The number of the format of all of this (schema_version.py)."""

QUARANTINE = "taskqueue:damaged"
"""zset, owner: mend, and any script that damage stopped. Keys that were set aside in the last week, by when."""


def quarantined(key: str) -> str:
    """any type, owner: as `QUARANTINE`; a week. What was found at a key where something of another type belongs."""
    return f"taskqueue:damaged:{key}"


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


def foreign(queue: str) -> str:
    """zset, owner: claim, recover, foreign_move. Jobs that RQ programs put into `rq_queue`, by when they were parked.

    They stay until they are moved to a queue of RQ's own; their records are RQ's and are not touched.
    """
    return f"taskqueue:foreign:{queue}"


def scheduled(queue: str) -> str:
    """zset, owner: submit, promote, cancel, expire. Tasks to run at a time, by that time."""
    return f"taskqueue:scheduled:{queue}"


def retrying(queue: str) -> str:
    """zset, owner: report, promote, cancel, expire. Tasks that wait for their next attempt, by its time."""
    return f"taskqueue:retrying:{queue}"


BLOCKED = "taskqueue:blocked"
"""zset, owner: submit, and every script that ends a task. Tasks that wait for others, by when they began to."""


def children(task_id: str) -> str:
    """zset, owner: submit, and every script that ends a task; until all of them have ended.

    The tasks that depend on one. Score: above 0 not told yet how it ended, 0 told, below 0 waiting for it to be
    retried (`_relations.lua`).
    """
    return f"taskqueue:children:{task_id}"


DEFERRED_WORK = "taskqueue:owed"
"""zset, owner: as `children`. `task:ID` whose children are still to be told, `batch:ID` with work left; by age."""


LEASES = "taskqueue:leases"
"""zset, owner: claim, extend, report, release, reap. Running tasks by the end of their lease."""

REAPER = "taskqueue:reaper"
"""hash, owner: reap. When ended leases were last looked for, and what does not count of the time since they ended."""

DEADLINES = "taskqueue:deadlines"
"""zset, owner: submit, claim, report, expire. Waiting tasks that must have started by a moment, by that moment."""


def ended(state: str) -> str:
    """zset, owner: report, cancel, expire, requeue, prune. Ended tasks of one final state, by their end."""
    return f"taskqueue:{state}"


UNIQUE = "taskqueue:unique"
"""hash, owner: submit; until the task starts or ends. Unique keys (type:key) and the ids that hold them."""


def unique_for(key: str) -> str:
    """string, owner: submit; the time that was asked for. The task that holds a unique key for a time."""
    return f"taskqueue:unique-for:{key}"


def idempotency(digest: str) -> str:
    """hash, owner: submit_once, request_begin, request_end; IDEMPOTENCY_TTL. The request that chose this key.

    fingerprint (of the request), answer; of one task its id (task); of many who is at it, until when, and the seed
    that the ids of its tasks are made from.
    """
    return f"taskqueue:idempotency:{digest}"


LIMITS = "taskqueue:limits"
"""hash, owner: the limit scripts; until a limit is removed. Limits in force: type:NAME or key:NAME to JSON."""

LIMITS_DECLARED = "taskqueue:limits:declared"
"""hash, owner: limit_declare; for ever. Limits that handlers and settings declare, set by hand or not."""

LIMITS_DUE = "taskqueue:limits:due"
"""zset, owner: submit, claim, the limit scripts. Limits that tasks wait for, by when a look is worth it.

+inf: when a slot is freed. `worker:TYPE#VERSIONS`: what waits for a worker with the type, in a version that is none of
those.
"""


def slots(limit: str) -> str:
    """set, owner: claim, report, release, reap; while the limit has a concurrency. The tasks that run under it."""
    return f"taskqueue:slots:{limit}"


def bucket(limit: str) -> str:
    """hash, owner: claim, release; until it is full again. Tokens of a rate limit, and as of when."""
    return f"taskqueue:bucket:{limit}"


def throttled(queue: str) -> str:
    """zset, owner: submit, claim, leave. Pending tasks that stand in a line instead of the list, as in `pending`."""
    return f"taskqueue:aside:{queue}"


def wait_queue(name: str) -> str:
    """zset, owner: submit, claim, leave. A line (queue|limit|tenant) by when its tasks were enqueued."""
    return f"taskqueue:line:{name}"


def wait_queues(lines: str) -> str:
    """zset, owner: submit, claim. The tenants in the lines of queue|limit by when each had its turn."""
    return f"taskqueue:turns:{lines}"


FAIR = "taskqueue:fair"
"""set, owner: submit, claim. Queues in which tenants take turns now."""

FAILURE_GROUPS = "taskqueue:causes"
"""zset, owner: every script that ends a task as failed, or takes it back. Causes of failure by how many are dead."""


def failure_group(fingerprint: str) -> str:
    """zset, owner: as `FAILURE_GROUPS`. The dead letters of one cause by their end."""
    return f"taskqueue:cause:{fingerprint}"


def first_seen(fingerprint: str) -> str:
    """string, owner: as `FAILURE_GROUPS`; 30 days after the last dead letter of a group. When its first task died."""
    return f"taskqueue:first-seen:{fingerprint}"


FAILURE_GROUP_OF = "taskqueue:cause-of"
"""hash, owner: as `FAILURE_GROUPS`. Each dead letter's cause, kept apart from the record, which may be damaged."""


# --- Ours: batches ----------------------------------------------------------------------------------------------


def batch(batch_id: str) -> str:
    """hash, owner: batch_open, and every script that moves a task; until its tasks are gone, a day at least.

    name, created_at, total, one count per state, ended, removed, max_running, stop_on_error, then, closed, done_at,
    stopped, stopped_at, work and work_at (how far a cancel or a retry of all its tasks is).
    """
    return f"taskqueue:batch:{batch_id}"


def batch_items(batch_id: str) -> str:
    """zset, owner: submit; as long as the batch. Its tasks by their place in it, also those removed since."""
    return f"taskqueue:batch-items:{batch_id}"


def batch_line(batch_id: str) -> str:
    """zset, owner: submit, and every script that moves a task. Blocked tasks that wait for room under max_running."""
    return f"taskqueue:batch-line:{batch_id}"


BATCHES = "taskqueue:batches"
"""zset, owner: batch_open, batch_prune. All batches by creation."""

OPEN_BATCHES = "taskqueue:batches:open"
"""zset, owner: batch_open, batch_close. Batches that are still being sent, by the last sign of life of the sender."""

EMPTY_BATCHES = "taskqueue:batches:empty"
"""zset, owner: batch_close, prune, purge. Batches without a task on record, by creation; a day old they go."""

# --- Ours: how the parts meet -----------------------------------------------------------------------------------

WAKEUP = "taskqueue:bell"
"""list, owner: as `DEFERRED_WORK`; at most 64 long. Each entry wakes one idle worker, whatever its queues."""


def wakeup(queue: str) -> str:
    """list, owner: submit, promote; at most 64 long. The same for a worker of this queue; losing one costs 4 s.

    Workers of earlier versions do not hear these: during an update they look at the end of their four seconds.
    """
    return f"taskqueue:bell:{queue}"


def control(worker: str) -> str:
    """list, owner: cancel, workers; an hour. Orders to one worker: `cancel ID`, `drain`, `look` (work for it)."""
    return f"taskqueue:control:{worker}"


def claim(worker: str) -> str:
    """string, owner: claim; a minute. The last claim, so that a command sent again gets the same answer."""
    return f"taskqueue:claim:{worker}"


def dispatched(worker: str) -> str:
    """string, owner: submit_one, claim; a minute. What a standing order brought, as `claim` notes it."""
    return f"taskqueue:handed:{worker}"


PARKED_CLAIMS = "taskqueue:standing"
"""zset, owner: claim, submit. Idle workers whose next claim may be answered before they send it, longest idle first."""


def order(worker: str) -> str:
    """string, owner: claim, submit; a minute. The arguments of an idle worker's next claim, in JSON."""
    return f"taskqueue:order:{worker}"


def direct_dispatch(worker: str) -> str:
    """channel: submit answers a standing order here; `[token of the claim, its reply]` in JSON."""
    return f"taskqueue:handover:{worker}"


SUBMISSION_CHECK = "taskqueue:submission-check"
"""string, owner: submission_check; a minute. When a gateway last found out, by writing this, that Redis takes tasks."""

PAUSED = "taskqueue:paused"
"""hash, owner: queues; for ever. Paused queues: name to JSON with reason and time."""

TYPE_SETS = "taskqueue:types:sets"
"""zset, owner: announce, types_publish, types_prune; TYPE_RETENTION. Sets of task types.

By the last heartbeat of a worker that has them.
"""


def type_set(digest: str) -> str:
    """hash, owner: as `TYPE_SETS`. The types of one set: name to version; @first (when published) and @host."""
    return f"taskqueue:types:set:{digest}"


TYPE_VERSIONS = "taskqueue:types:versions"
"""hash, owner: as `TYPE_SETS`. Versions in these sets: digest to JSON with the name and the schema of the data."""

TYPES_OF = "taskqueue:types:of"
"""hash, owner: workers. The set of each live worker; "-" while it takes no tasks."""

TYPES = "taskqueue:types"
"""hash, owner: workers of earlier versions; TYPE_RETENTION. The types that these have: name to JSON."""

WORKERS = "taskqueue:workers"
"""zset, owner: workers. Live workers by their last heartbeat; the timeout job moves silent ones to `LOST_WORKERS`."""

LOST_WORKERS = "taskqueue:workers:lost"
"""zset, owner: the timeout job; a week, at most 100. Workers that died or hang, by their last heartbeat."""

REASSIGNED = "taskqueue:workers:reassigned"
"""zset, owner: reap; as long as its worker is on record. How many tasks each lost, which went back to their queues."""


def worker(name: str) -> str:
    """string (JSON), owner: the worker; until its farewell, else a week. What it is doing."""
    return f"taskqueue:worker:{name}"


def throughput(minute: int) -> str:
    """hash, owner: submit, report, reap; two hours. Counts of one minute since 1970: submitted, completed, ..."""
    return f"taskqueue:throughput:{minute}"


RECOVERY_CURSOR = "taskqueue:recovery"
"""hash, owner: recover; for ever. Where the slow walk over all tasks stands."""


# --- Ours: people -----------------------------------------------------------------------------------------------

AUDIT = "taskqueue:audit"
"""stream, owner: audit; about 10,000 entries. Who did what to which task, queue or worker, and why."""

DASHBOARD_SECRET = "taskqueue:dashboard:secret"  # noqa: S105  # the name of a key
"""string, owner: the dashboard; for ever. Signs its cookies, the same in every process, unless a setting does."""


def dashboard_session(digest: str) -> str:
    """string, owner: the dashboard; DASHBOARD_SESSION, or until the sign-out. The user of a session, by its id's hash.

    Lets nobody in by itself: the cookie is signed, and carries a mark of the password (`dashboard/auth/security.py`).
    """
    return f"taskqueue:dashboard:session:{digest}"


def api_key(key_id: str) -> str:
    """hash, owner: key_use; a year after the last request. When a key of the REST API was last used; its rate's tokens.

    used, tokens, at. Nothing here lets anybody in: who may is in `API_KEYS` and its file (`shared/stores/api_keys.py`).
    """
    return f"taskqueue:api-key:{key_id}"


BULKS = "taskqueue:bulks"
"""zset, owner: bulk_actions; the latest 100. Actions on many dead letters at once, by when they were begun."""

OPEN_BULKS = "taskqueue:bulks:open"
"""set, owner: bulk_actions. Those that still have something to do; any dashboard carries them on."""


def bulk(action_id: str) -> str:
    """hash, owner: bulk_actions and its scripts; as long as it is in `BULKS`. What to do, how fast, how far it is."""
    return f"taskqueue:bulk:{action_id}"


FOLLOWED_BULKS = "taskqueue:bulks:followed"
"""set, owner: bulk_actions. Those that sent something back which has not ended yet."""


def bulk_followed(action_id: str) -> str:
    """hash, owner: bulk_actions; until its tasks have ended. Tasks sent back: when, and what they had failed of."""
    return f"taskqueue:bulk:{action_id}:followed"


def bulk_ids(action_id: str) -> str:
    """zset, owner: bulk_actions; as long as its action. The hand-picked tasks that are still to be done."""
    return f"taskqueue:bulk:{action_id}:ids"


# --- Ours: housekeeping ------------------------------------------------------------------------------------------


def lock(name: str) -> str:
    """hash, owner: the lock scripts; until the lock ends.

    Token, owner, thread, fence, acquired_at, until, rests, barred. Named after a housekeeping job, or `task.NAME` when
    a handler takes it. Without a token nobody holds it: it rests, or its last holder is barred from it.
    """
    return f"taskqueue:housekeeper:lock:{name}"


LOCK_FENCES = "taskqueue:housekeeper:fences"
"""hash, owner: lock_acquire; for ever. The last fencing number of every lock; so also their list: at most 1,000."""

SCHEDULES = "taskqueue:schedules"
"""zset, owner: the schedule scripts; for ever. Names of all schedules, all with score 0: so by name."""

SCHEDULES_DUE = "taskqueue:schedules:due"
"""zset, owner: the schedule scripts. Names of the schedules that are not paused, by their next time."""


def schedule(name: str) -> str:
    """hash, owner: the schedule scripts; until it is removed.

    spec (JSON), revision, source (file or api), due, paused (JSON), last_due, last_task, fired, missed, overlaps.
    """
    return f"taskqueue:schedule:{name}"


RQ_SCHEDULER_ENTRIES = "rq:scheduler:scheduled_jobs"
"""zset, owner: the schedule scripts. rq-scheduler's own list: our entries by their next time, in seconds.

A copy for its `get_jobs`; each entry is an RQ job under `rq:job:NAME-entry`, which no worker runs.
"""
