"""Every key in Redis: the map of the product, and the only place where keys are spelled.

Times in scores and fields are microseconds since 1970 by Redis' own clock unless stated otherwise. "Permanent" means:
until the task is removed at the end of the retention of its final state. Queues are few (one per priority). Scripts
write `keys.NAME` and `keys.name(x)` too; the linker puts the text in their place, so a function takes one argument,
which ends the key. Our keys and RQ's have no common hash tag: one primary (with replicas, Sentinel) holds all of them;
Redis Cluster is not supported.
"""

from __future__ import annotations

# --- RQ's own, written so that rq info, rq-dashboard and Job.fetch read a running system -------------------------


def rq_job(task_id: str) -> str:
    """hash, owner: every script; permanent. The record of a task: RQ's fields, and ours beside them.

    Ours: state, attempt, failures, crashes, losses, suspicions, token, begun, due_at, expires_at, tags, retry, error,
    progress, time_limit, cancel, sent_back, unique, unique_until, unique_client, limit_key, fair_key, wait_queue (which
    holds it), refused (by which versions of the type), refusal (why), and one `attempt:N` per attempt (JSON). For a
    task with links to others also relations (1), children (how many), one `child:N` for each of these, parents (JSON),
    on_parent_failure, open_parents (how many), batch, batch_index, after_batch; for one with a webhook also webhook
    (JSON), delivered_end (the end that was delivered) and deliveries (how many), and for each delivery delivery_of and
    receiver (its host).
    RQ's that we rely on: status, data, origin, description (the type), timeout, meta, created_at, enqueued_at,
    started_at, ended_at, worker_name.
    """
    return f"rq:job:{task_id}"


RQ_QUEUES = "rq:queues"
"""set, owner: submit; permanent. The full key of every queue that ever held a task."""


def rq_queue(lane: str) -> str:
    """list, owner: submit, claim, promote; permanent. Queue entries: ids that lead a worker to pending tasks.

    An entry is only a hint. `pending` decides whether the task may run, so a surplus entry is harmless and a missing
    one is restored by recovery. A queue has two lanes: the one named as the queue is, for tasks that run one at a time
    in a process, and one with a `+` after the name, for tasks of concurrent types.
    """
    return f"rq:queue:{lane}"


def rq_started(queue: str) -> str:
    """zset, owner: claim, report, reap. Members `id:token` with score +inf, which no stock tool removes."""
    return f"rq:wip:{queue}"


def rq_scheduled(queue: str) -> str:
    """zset, owner: submit, report, promote. A copy of `scheduled` and `retrying` for RQ's tools, in seconds."""
    return f"rq:scheduled:{queue}"


def rq_deferred(queue: str) -> str:
    """zset, owner: submit, claim. A copy of `blocked` (in seconds) and of `throttled` (+inf) for RQ's tools."""
    return f"rq:deferred:{queue}"


def rq_finished(queue: str) -> str:
    """zset, owner: report, prune. Score: when the record is removed, in seconds."""
    return f"rq:finished:{queue}"


def rq_failed(queue: str) -> str:
    """zset, owner: report, requeue, purge. Score: when the record is removed, in seconds."""
    return f"rq:failed:{queue}"


def rq_canceled(queue: str) -> str:
    """zset, owner: cancel, expire, prune. Score: when the record is removed, in seconds."""
    return f"rq:canceled:{queue}"


def rq_results(task_id: str) -> str:
    """stream, owner: report; permanent. RQ's results: the return value, or the tracebacks of the last ten failures."""
    return f"rq:results:{task_id}"


RQ_WORKERS = "rq:workers"
"""set, owner: workers. Keys of the live workers."""


def rq_workers(queue: str) -> str:
    """set, owner: workers. Keys of the live workers of one queue."""
    return f"rq:workers:{queue}"


def rq_worker(name: str) -> str:
    """hash, owner: the worker; expires a minute after its last heartbeat."""
    return f"rq:worker:{name}"


# --- Ours: the whole of it -----------------------------------------------------------------------------------------

FORMAT = "taskqueue:format"
"""string, owner: every new connection; permanent. The schema version (schema_version.py)."""

NOTHING = "taskqueue:nothing"
"""any type, owner: none, never written. Its deletion is a write that a full Redis does not refuse."""

QUARANTINE = "taskqueue:quarantine"
"""zset, owner: quarantine, and any script run again with it. Keys quarantined in the last week, by when."""


def quarantined(key: str) -> str:
    """any type, owner: as `QUARANTINE`; a week. The value of a key that held another type than it should."""
    return f"taskqueue:quarantine:{key}"


# --- Ours: the state of a task ---------------------------------------------------------------------------------

TASKS = "taskqueue:tasks"
"""zset, owner: submit, remove; permanent. Every task by creation."""


def tasks_of_type(task_type: str) -> str:
    """zset, owner: submit, remove; permanent. The tasks of one type by creation."""
    return f"taskqueue:tasks:type:{task_type}"


def tasks_with_tag(tag: str) -> str:
    """zset, owner: submit, remove; permanent. The tasks that carry a tag by creation."""
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
    """zset, owner: submit, promote, cancel, expire. Tasks that start at a given time, by that time."""
    return f"taskqueue:scheduled:{queue}"


def retrying(queue: str) -> str:
    """zset, owner: report, promote, cancel, expire. Tasks that wait for a retry, by its time."""
    return f"taskqueue:retrying:{queue}"


BLOCKED = "taskqueue:blocked"
"""zset, owner: submit, and every script that ends a task. Blocked tasks, by when they became blocked."""


def children(task_id: str) -> str:
    """zset, owner: submit, and every script that ends a task; until all of them have ended.

    The tasks that depend on one. Score: above 0 not notified yet of its end, 0 notified, below 0 waiting for its retry
    (`_relations.lua`).
    """
    return f"taskqueue:children:{task_id}"


DEFERRED_WORK = "taskqueue:deferred"
"""zset, owner: as `children`. Deferred work: `task:ID` with children to notify, `batch:ID` with work left; by age."""


LEASES = "taskqueue:leases"
"""zset, owner: claim, extend, report, release, reap. Running tasks by the end of their lease."""

REAPER = "taskqueue:reaper"
"""hash, owner: reap. When ended leases were last checked, and how much of the time since is an outage."""

DEADLINES = "taskqueue:deadlines"
"""zset, owner: submit, claim, report, expire. Waiting tasks with an expiry, by that time."""


def ended(state: str) -> str:
    """zset, owner: report, cancel, expire, requeue, prune. Ended tasks of one final state, by their end."""
    return f"taskqueue:{state}"


UNIQUE = "taskqueue:unique"
"""hash, owner: submit; until the task starts or ends. Unique keys (type:key) and the ids of their holders."""


def unique_for(key: str) -> str:
    """string, owner: submit; the requested time. The task that holds a unique key for a time."""
    return f"taskqueue:unique-for:{key}"


def idempotency(digest: str) -> str:
    """hash, owner: submit_once, request_begin, request_end, batch_extend; IDEMPOTENCY_TTL. The request with this key.

    fingerprint (of the request), answer; for one task its id (task); for many the token of the process that carries it
    out, its time-out, the seed of the ids of its tasks, and the first of their indexes in a batch.
    """
    return f"taskqueue:idempotency:{digest}"


LIMITS = "taskqueue:limits"
"""hash, owner: the limit scripts; until a limit is removed. Effective limits: type:NAME or key:NAME to JSON."""

LIMITS_DECLARED = "taskqueue:limits:declared"
"""hash, owner: limit_declare; permanent. Limits that handlers and settings declare, overridden or not."""

LIMITS_DUE = "taskqueue:limits:due"
"""zset, owner: submit, claim, the limit scripts. Limits with waiting tasks, by when one may start.

+inf: when a slot is freed. `worker:TYPE#VERSIONS`: tasks that wait for a worker with the type, in a version that is not
one of those.
"""


def slots(limit: str) -> str:
    """set, owner: claim, report, release, reap; while the limit has a concurrency. Running tasks that hold a slot."""
    return f"taskqueue:slots:{limit}"


def bucket(limit: str) -> str:
    """hash, owner: claim, release; until it is full again. Tokens of a rate limit, and when they were counted."""
    return f"taskqueue:bucket:{limit}"


def throttled(queue: str) -> str:
    """zset, owner: submit, claim, leave. Throttled tasks (in a wait queue, not the list), as in `pending`."""
    return f"taskqueue:throttled:{queue}"


def wait_queue(name: str) -> str:
    """zset, owner: submit, claim, leave. A wait queue (queue|limit|tenant), by when its tasks were enqueued."""
    return f"taskqueue:wait-queue:{name}"


def wait_queues(group: str) -> str:
    """zset, owner: submit, claim. The tenants in the wait queues of queue|limit, by their last turn."""
    return f"taskqueue:wait-queues:{group}"


FAIR = "taskqueue:fair"
"""set, owner: submit, claim. Queues in which tenants currently take turns."""

FAILURE_GROUPS = "taskqueue:failure-groups"
"""zset, owner: every script that dead-letters a task, or undoes that. Fingerprints by number of dead letters."""


def failure_group(fingerprint: str) -> str:
    """zset, owner: as `FAILURE_GROUPS`. The dead letters of one group by their end."""
    return f"taskqueue:failure-group:{fingerprint}"


def first_seen(fingerprint: str) -> str:
    """string, owner: as `FAILURE_GROUPS`; 30 days after the last dead letter of a group. When its first task failed."""
    return f"taskqueue:first-seen:{fingerprint}"


FAILURE_GROUP_OF = "taskqueue:failure-group-of"
"""hash, owner: as `FAILURE_GROUPS`. Each dead letter's fingerprint, apart from the record, which may be corrupt."""


# --- Ours: batches ----------------------------------------------------------------------------------------------


def batch(batch_id: str) -> str:
    """hash, owner: batch_open, and every script that moves a task; until its tasks are removed, at least a day.

    name, created_at, total, one count per state, ended, removed, max_running, stop_on_error, then, closed, done_at,
    stopped, stopped_at, work and work_at (progress of a cancel or a retry of all its tasks), next (the index behind all
    reserved ones).
    """
    return f"taskqueue:batch:{batch_id}"


def batch_items(batch_id: str) -> str:
    """zset, owner: submit; as long as the batch. Its tasks by their place in it, including removed ones."""
    return f"taskqueue:batch-items:{batch_id}"


def batch_wait_queue(batch_id: str) -> str:
    """zset, owner: submit, and every script that moves a task. Blocked tasks that wait for a slot of max_running."""
    return f"taskqueue:batch-waiting:{batch_id}"


BATCHES = "taskqueue:batches"
"""zset, owner: batch_open, batch_prune. All batches by creation."""

OPEN_BATCHES = "taskqueue:batches:open"
"""zset, owner: batch_open, batch_close. Batches that are still open, by the last request of the sender."""

EMPTY_BATCHES = "taskqueue:batches:empty"
"""zset, owner: batch_close, prune, purge. Batches without a task on record, by creation; removed after a day."""

# --- Ours: between the components--------------------------------------------------------------------------------

WAKEUP = "taskqueue:wakeup"
"""list, owner: as `DEFERRED_WORK`; at most 64 long. Wake-up list: each entry wakes one idle worker of any queue."""


def wakeup(lane: str) -> str:
    """list, owner: submit, promote; at most 64 long. The wake-up list of a lane; a lost entry delays a task by 4 s."""
    return f"taskqueue:wakeup:{lane}"


def control(worker: str) -> str:
    """list, owner: cancel, workers; an hour. Commands to one worker: `cancel ID`, `drain`, `look` (work for it)."""
    return f"taskqueue:control:{worker}"


def claim(claimant: str) -> str:
    """string, owner: claim; a minute. The last claim, so that a repeated command gets the same answer.

    A claimant is a worker, or, for its concurrent executors, its name with a `+`.
    """
    return f"taskqueue:claim:{claimant}"


def dispatched(claimant: str) -> str:
    """string, owner: submit_one, claim; a minute. The answer of a parked claim, as `claim` records it."""
    return f"taskqueue:dispatched:{claimant}"


PARKED_CLAIMS = "taskqueue:parked-claims"
"""zset, owner: claim, submit. Workers with a parked claim, longest idle first."""


def parked_claim(claimant: str) -> str:
    """string, owner: claim, submit; a minute. A parked claim: the arguments of the worker's next claim, in JSON."""
    return f"taskqueue:parked-claim:{claimant}"


def direct_dispatch(worker: str) -> str:
    """channel: submit answers a parked claim here; `[token of the claim, its reply]` in JSON."""
    return f"taskqueue:direct-dispatch:{worker}"


SUBMISSION_CHECK = "taskqueue:submission-check"
"""string, owner: submission_check; a minute. When a gateway last verified, by writing this, that Redis takes tasks."""

PAUSED = "taskqueue:paused"
"""hash, owner: queues; permanent. Paused queues: name to JSON with reason and time."""

TYPE_SETS = "taskqueue:types:sets"
"""zset, owner: announce, types_publish, types_prune; TYPE_RETENTION. Sets of task types.

By the last heartbeat of a worker that has them.
"""


def type_set(digest: str) -> str:
    """hash, owner: as `TYPE_SETS`. The types of one set: name to version; @first (time of publication) and @host."""
    return f"taskqueue:types:set:{digest}"


TYPE_VERSIONS = "taskqueue:types:versions"
"""hash, owner: as `TYPE_SETS`. Versions in these sets: digest to JSON with the name and the schema of the data."""

CONCURRENT_TYPES = "taskqueue:types:concurrent"
"""set, owner: announce; permanent. Types of which an executor runs many tasks at a time (lane `QUEUE+`)."""

TYPES_OF = "taskqueue:types:of"
"""hash, owner: workers. The set of each live worker; "-" while it takes no tasks."""


WORKERS = "taskqueue:workers"
"""zset, owner: workers. Live workers by their last heartbeat; the timeout job moves silent ones to `LOST_WORKERS`."""

LOST_WORKERS = "taskqueue:workers:lost"
"""zset, owner: the timeout job; a week, at most 100. Workers that died or hung, by their last heartbeat."""

REASSIGNED = "taskqueue:workers:reassigned"
"""zset, owner: reap; as long as its worker is on record. How many tasks each lost, now back in their queues."""


def worker(name: str) -> str:
    """string (JSON), owner: the worker; until its orderly end, else a week. Its current work."""
    return f"taskqueue:worker:{name}"


def throughput(minute: int) -> str:
    """hash, owner: submit, report, reap; two hours. Counts of one minute since 1970: submitted, completed, ..."""
    return f"taskqueue:throughput:{minute}"


RECOVERY_CURSOR = "taskqueue:recovery"
"""hash, owner: recover; permanent. The position of the consistency check."""


# --- Ours: users ------------------------------------------------------------------------------------------------

AUDIT = "taskqueue:audit"
"""stream, owner: audit; about 10,000 entries. Who did what to which task, queue or worker, and why."""

DASHBOARD_SECRET = "taskqueue:dashboard:secret"  # noqa: S105  # the name of a key
"""string, owner: the dashboard; permanent. Signs its cookies in every process, unless a setting does."""


def dashboard_session(digest: str) -> str:
    """string, owner: the dashboard; DASHBOARD_SESSION, or until the sign-out. The user of a session, by its id's hash.

    Grants no access by itself: the cookie is signed, and carries a mark of the password (`dashboard/auth/sessions.py`).
    """
    return f"taskqueue:dashboard:session:{digest}"


def api_key(key_id: str) -> str:
    """hash, owner: key_use; a year after the last request. When a key of the REST API was last used; its rate's tokens.

    used, tokens, at. Grants no access: `API_KEYS` and its file do (`shared/stores/api_keys.py`).
    """
    return f"taskqueue:api-key:{key_id}"


BULKS = "taskqueue:bulks"
"""zset, owner: bulk_actions; the latest 100. Bulk actions on dead letters, by when they were begun."""

OPEN_BULKS = "taskqueue:bulks:open"
"""set, owner: bulk_actions. Unfinished bulk actions; any dashboard carries them out."""


def bulk(action_id: str) -> str:
    """hash, owner: bulk_actions and its scripts; as long as it is in `BULKS`. Action, rate and progress."""
    return f"taskqueue:bulk:{action_id}"


FOLLOWED_BULKS = "taskqueue:bulks:followed"
"""set, owner: bulk_actions. Bulk actions with requeued tasks that have not ended yet."""


def bulk_followed(action_id: str) -> str:
    """hash, owner: bulk_actions; until its tasks have ended. Requeued tasks: when, and their fingerprint."""
    return f"taskqueue:bulk-followed:{action_id}"


def bulk_ids(action_id: str) -> str:
    """zset, owner: bulk_actions; as long as its action. The selected tasks that are still to be done."""
    return f"taskqueue:bulk-ids:{action_id}"


# --- Ours: housekeeping ------------------------------------------------------------------------------------------


def lock(name: str) -> str:
    """hash, owner: the lock scripts; until the lock ends.

    Token, owner, thread, fence, acquired_at, until, cooldown_until, blocked_owner. Named after a housekeeping job, or
    `task.NAME` for the lock of a handler. Without a token it is not held: it is in its cooldown, or its last holder
    is blocked from it.
    """
    return f"taskqueue:housekeeper:lock:{name}"


LOCK_FENCES = "taskqueue:housekeeper:fences"
"""hash, owner: lock_acquire; permanent. The last fencing number of each lock; also the list of locks, at most 1,000."""

SCHEDULES = "taskqueue:schedules"
"""zset, owner: the schedule scripts; permanent. Names of all schedules, all with score 0, so in order of name."""

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
