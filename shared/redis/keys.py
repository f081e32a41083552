"""Every key in Redis, except features' keys (`features/NAME/keys.py`): the only places where keys are spelled.

All keys and channels of a system begin with its prefix (`KEY_PREFIX`), which is part of the address of a client.

Times in scores and fields are microseconds since 1970 by Redis' own clock unless stated otherwise. "Permanent" means:
until the task is removed at the end of the retention of its final state. Queues are at most MAX_QUEUES. Scripts
write `keys.NAME` and `keys.name(x)` too; the linker puts the text in their place, so a function takes one argument,
which ends the key. One primary holds all keys of a store, of which most systems have one: on a cluster the prefix of
a store has a hash tag, which puts them into one slot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Self

from firmq.shared.registry import features_of


@cache
def with_prefix(prefix: str) -> Keys:
    """Returns the keys of the system with this prefix; for one prefix always the same object."""
    return Keys(prefix)


class Key:
    """A key that a system has once. One that holds another type than `kind` is quarantined."""

    def __init__(self, name: str, kind: str = "") -> None:
        self.name = name
        self.kind = kind

    def __get__(self, keys: KeySpace, owner: type[KeySpace]) -> str:
        return keys.prefix + self.name


class KeySpace:
    """Keys of one system, for the core or a feature."""

    def __init__(self, prefix: str) -> None:
        self.prefix = f"{prefix}:" if prefix else ""

    @classmethod
    def beside(cls, keys: KeySpace) -> Self:
        """Returns these keys of the system that has the others."""
        return cls(keys.prefix.removesuffix(":"))

    @classmethod
    def kinds(cls) -> Mapping[str, str]:
        """Returns the names of the constants with a type, each with that type."""
        return {name: key.kind for name, key in vars(cls).items() if isinstance(key, Key) and key.kind}

    def of_id(self, given: str) -> Sequence[str]:
        """Returns keys of which one exists in the store of this id."""
        return ()


@cache
def of_features(keys: Keys) -> Sequence[KeySpace]:
    """Returns the keys that the features have in a system."""
    return [each.keys.beside(keys) for each in features_of("shared") if each.keys]


class Keys(KeySpace):
    """The keys of the core."""

    # --- RQ's own, written so that rq info, rq-dashboard and Job.fetch read a running system -------------------------

    def rq_job(self, task_id: str) -> str:
        """hash, owner: every script; permanent. The record of a task: RQ's fields, and ours beside them.

        Ours: state, attempt, failures, crashes, losses, suspicions, token, begun, due_at, expires_at, tags, retry,
        error, progress, time_limit, cancel, sent_back, bulk (the bulk action that cancelled it), submitted_by, unique,
        unique_until, unique_client, limit_key, fair_key, score, wait_queue (which holds it), refused (by which versions
        of the type), refusal (why), pinned (the version of the type that it is for), and one `attempt:N` per
        attempt (JSON). For a task with links to others also relations (1), children (how many), one `child:N` for each
        of these, parents (JSON), on_parent_failure, open_parents (how many), spawned (1), batch, batch_index,
        after_batch; for one with a webhook also webhook (JSON), delivered_end (the end that was delivered) and
        deliveries (how many), and for each delivery delivery_of and receiver (its host). RQ's that we rely on: status,
        data, origin, description (the type), timeout, meta, created_at, enqueued_at, started_at, ended_at, worker_name.
        """
        return f"{self.prefix}rq:job:{task_id}"

    RQ_QUEUES = Key("rq:queues", "set")
    """set, owner: submit, queues_prune. The full key of each lane that held a task; RQ programs add theirs."""

    ADOPTED_LANES = Key("firmq:adopted-lanes", "set")
    """set, owner: rq_adopt, queues_prune. As `RQ_QUEUES`, for lanes that held only tasks made of RQ jobs.

    RQ's tools list the queues of `RQ_QUEUES`, and a program expects to find there those that it made.
    """

    def rq_queue(self, lane: str) -> str:
        """list, owner: submit, claim, promote; permanent. Queue entries: ids that lead a worker to pending tasks.

        An entry is only a hint. `pending` decides whether the task may run, so a surplus entry is harmless and a
        missing one is restored by recovery. A queue has two lanes: the one named as the queue is, for tasks that run
        one at a time in a process, and one with a `+` after the name, for tasks of concurrent types.
        """
        return f"{self.prefix}rq:queue:{lane}"

    def rq_started(self, queue: str) -> str:
        """zset, owner: claim, report, reap. Members `id:token` with score +inf, which no stock tool removes."""
        return f"{self.prefix}rq:wip:{queue}"

    def rq_scheduled(self, queue: str) -> str:
        """zset, owner: submit, report, promote. A copy of `scheduled` and `retrying` for RQ's tools, in seconds."""
        return f"{self.prefix}rq:scheduled:{queue}"

    def rq_deferred(self, queue: str) -> str:
        """zset, owner: submit, claim. A copy of `blocked` (in seconds) and of `throttled` (+inf) for RQ's tools."""
        return f"{self.prefix}rq:deferred:{queue}"

    def rq_finished(self, queue: str) -> str:
        """zset, owner: report, prune. Score: when the record is removed, in seconds."""
        return f"{self.prefix}rq:finished:{queue}"

    def rq_failed(self, queue: str) -> str:
        """zset, owner: report, requeue, purge. Score: when the record is removed, in seconds."""
        return f"{self.prefix}rq:failed:{queue}"

    def rq_canceled(self, queue: str) -> str:
        """zset, owner: cancel, expire, prune. Score: when the record is removed, in seconds."""
        return f"{self.prefix}rq:canceled:{queue}"

    def rq_results(self, task_id: str) -> str:
        """stream, owner: report; permanent. RQ's results: the return value, or the last ten tracebacks."""
        return f"{self.prefix}rq:results:{task_id}"

    def output(self, task_id: str) -> str:
        """stream, owner: output_append; permanent. The handler's output: `attempt` and `chunk` (JSON) of each entry.

        An entry without a chunk marks the reached bound. `output` in the record has the attempt, the number of
        its last chunk, and the bytes of all.
        """
        return f"{self.prefix}firmq:output:{task_id}"

    RQ_WORKERS = Key("rq:workers", "set")
    """set, owner: workers. Keys of the live workers."""

    def rq_workers(self, queue: str) -> str:
        """set, owner: workers. Keys of the live workers of one queue."""
        return f"{self.prefix}rq:workers:{queue}"

    def rq_worker(self, name: str) -> str:
        """hash, owner: the worker; expires a minute after its last heartbeat."""
        return f"{self.prefix}rq:worker:{name}"

    def rq_executions(self, job_id: str) -> str:
        """zset, owner: RQ's own code in executors, report, rq_fail. The attempts of an RQ job that run."""
        return f"{self.prefix}rq:executions:{job_id}"

    def rq_execution(self, attempt: str) -> str:
        """hash, owner: RQ's own code in executors, report, rq_fail. One of them, JOB:EXECUTION."""
        return f"{self.prefix}rq:execution:{attempt}"

    def rq_scheduler_lock(self, rq_name: str) -> str:
        """string, owner: RQ's scheduler. The process that enqueues due jobs of an RQ queue; we do without it."""
        return f"{self.prefix}rq:scheduler-lock:{rq_name}"

    def rq_ready(self, queue: str) -> str:
        """zset, owner: RQ 3's own code, rq_adopt. Jobs whose dependencies have ended, until they are enqueued."""
        return f"{self.prefix}rq:ready:{queue}"

    RQ_RATE_LIMITS = Key("rq:rl-keys")
    """set, owner: RQ's own code, rq_adopt, rq_slots. The rate limits of RQ programs."""

    def rq_rate_limit(self, limit: str) -> str:
        """hash, owner: RQ's own code, rq_adopt, rq_slots. One; zsets LIMIT:allowed and LIMIT:rate_limited."""
        return f"{self.prefix}rq:rl:{limit}"

    RQ_SUSPENDED = Key("rq:suspended", "string")
    """string, owner: `rq suspend`. While it exists no job is adopted."""

    # --- Ours: the whole of it -------------------------------------------------------------------------------------

    FORMAT = Key("firmq:format")
    """string, owner: every new connection; permanent. The schema version (schema_version.py)."""

    DRAINING = Key("firmq:draining", "string")
    """string, owner: draining_set; permanent. Exists while this store takes only tasks that belong to it."""

    STORE_NUMBER = Key("firmq:partition", "string")
    """string, owner: every new connection of a system with several stores; permanent. The number of this one."""

    WORKERS_STARTED = Key("firmq:workers-started", "string")
    """string, owner: workers of a system with several stores; permanent. How many have started: they take turns."""

    NOTHING = Key("firmq:nothing")
    """any type, owner: none, never written. Scripts declare it; a full Redis does not refuse its deletion, a write."""

    QUARANTINE = Key("firmq:quarantine", "zset")
    """zset, owner: quarantine, and any script run again with it. Keys quarantined in the last week, by when."""

    def quarantined(self, key: str) -> str:
        """any type, owner: as `QUARANTINE`; a week. The value of a key that held another type than it should."""
        return f"{self.prefix}firmq:quarantine:{key}"

    # --- Ours: the state of a task ---------------------------------------------------------------------------------

    TASKS = Key("firmq:tasks", "zset")
    """zset, owner: submit, remove; permanent. Every task by creation."""

    def tasks_of_type(self, task_type: str) -> str:
        """zset, owner: submit, remove; permanent. The tasks of one type by creation."""
        return f"{self.prefix}firmq:tasks:type:{task_type}"

    def tasks_with_tag(self, tag: str) -> str:
        """zset, owner: submit, remove; permanent. The tasks that carry a tag by creation."""
        return f"{self.prefix}firmq:tasks:tag:{tag}"

    def pending(self, queue: str) -> str:
        """zset, owner: submit, promote, claim, cancel, expire, reap. Pending tasks by the moment they were enqueued."""
        return f"{self.prefix}firmq:pending:{queue}"

    def foreign(self, queue: str) -> str:
        """zset, owner: claim, recover, foreign_move. Jobs that RQ programs put into `rq_queue`, by when we parked them.

        They stay until they are moved to a queue of RQ's own; their records are RQ's and are not touched.
        """
        return f"{self.prefix}firmq:foreign:{queue}"

    RQ_ADOPTED = Key("firmq:rq-adopted", "hash")
    """hash, owner: the scripts of the feature rq, report. Tasks made of RQ jobs: when the job was enqueued, its id."""

    def scheduled(self, queue: str) -> str:
        """zset, owner: submit, promote, cancel, expire. Tasks that start at a given time, by that time."""
        return f"{self.prefix}firmq:scheduled:{queue}"

    def retrying(self, queue: str) -> str:
        """zset, owner: report, promote, cancel, expire. Tasks that wait for a retry, by its time."""
        return f"{self.prefix}firmq:retrying:{queue}"

    AWAITING = Key("firmq:awaiting", "zset")
    """zset, owner: report, every script that moves a scheduled task. Tasks that wait for a signal, by its time-out."""

    def awaiting(self, signal: str) -> str:
        """zset, owner: as `AWAITING`. Those that wait for a signal of this name."""
        return f"{self.prefix}firmq:awaiting:{signal}"

    BLOCKED = Key("firmq:blocked", "zset")
    """zset, owner: submit, and every script that ends a task. Blocked tasks, by when they became blocked."""

    def children(self, task_id: str) -> str:
        """zset, owner: submit, and every script that ends a task; until all of them have ended.

        The tasks that depend on one. Score: above 0 not notified yet of its end, 0 notified, below 0 waiting for its
        retry (`_relations.lua`).
        """
        return f"{self.prefix}firmq:children:{task_id}"

    DEFERRED_WORK = Key("firmq:deferred", "zset")
    """zset, owner: as `children`. Deferred work by age: `task:ID` with children to notify, `batch:ID` with work."""

    LEASES = Key("firmq:leases", "zset")
    """zset, owner: claim, extend, report, release, reap. Running tasks by the end of their lease."""

    REAPER = Key("firmq:reaper", "hash")
    """hash, owner: reap. When ended leases were last checked, and how much of the time since is an outage."""

    DEADLINES = Key("firmq:deadlines", "zset")
    """zset, owner: submit, claim, report, expire. Waiting tasks with an expiry, by that time."""

    def ended(self, state: str) -> str:
        """zset, owner: report, cancel, expire, requeue, prune. Ended tasks of one final state, by their end."""
        return f"{self.prefix}firmq:{state}"

    DELETED = Key("firmq:deleted", "zset")
    """zset, owner: purge, bulk_step, restore; RETENTION_DELETED. Deleted tasks that can be restored, by deletion."""

    def deleted(self, task_id: str) -> str:
        """hash, owner: as `DELETED`; RETENTION_DELETED. The record of a deleted task, and the bulk action (bulk)."""
        return f"{self.prefix}firmq:deleted:{task_id}"

    def deleted_results(self, task_id: str) -> str:
        """stream, owner: as `DELETED`; RETENTION_DELETED. RQ's results of a deleted task."""
        return f"{self.prefix}firmq:deleted-results:{task_id}"

    HISTORY = Key("firmq:history", "hash")
    """hash, owner: history_take; a week after the last run of the job `history`. There is a history to feed.

    most (how many ends may wait for it), lost (how many were given up over that), checked_at and error of the last run.
    """

    UNARCHIVED = Key("firmq:history:unarchived", "zset")
    """zset, owner: every script that ends a task, history_done. Ends that are not in the history yet, by their time.

    The id of the task, or ID|SCORE for one whose record was removed or requeued since (`kept_end`).
    """

    def kept_end(self, member: str) -> str:
        """hash, owner: as `UNARCHIVED`. The record of a task as it was at that end, with the result for RQ."""
        return f"{self.prefix}firmq:history:end:{member}"

    PAYLOAD_STORE = Key("firmq:payload-store", "string")
    """string, owner: the job payloads; permanent. The mark of the payload store that belongs to this data."""

    UNIQUE = Key("firmq:unique", "hash")
    """hash, owner: submit; until the task starts or ends. Unique keys (type:key) and the ids of their holders."""

    def unique_for(self, key: str) -> str:
        """string, owner: submit; the requested time. The task that holds a unique key for a time."""
        return f"{self.prefix}firmq:unique-for:{key}"

    def idempotency(self, digest: str) -> str:
        """hash, owner: submit_once, request_begin, request_end, batch_extend; IDEMPOTENCY_TTL. A request with this key.

        fingerprint (of the request), answer; for one task its id (task); for many the token of the process that carries
        it out, its time-out, the seed of the ids of its tasks, the first of their indexes in a batch, and the earlier
        tasks from which they are made (selected).
        """
        return f"{self.prefix}firmq:idempotency:{digest}"

    LIMITS = Key("firmq:limits", "hash")
    """hash, owner: the limit scripts; until a limit is removed. Effective limits: type:NAME or key:NAME to JSON."""

    LIMITS_DECLARED = Key("firmq:limits:declared", "hash")
    """hash, owner: limit_declare; permanent. Limits that handlers and settings declare, overridden or not."""

    LIMITS_DUE = Key("firmq:limits:due", "zset")
    """zset, owner: submit, claim, the limit scripts. Limits with waiting tasks, by when one may start.

    +inf: when a slot is freed. Wait queues of tasks that wait for a worker are here too (`_types.lua`).
    """

    def slots(self, limit: str) -> str:
        """set, owner: claim, report, release, reap; while the limit has a concurrency. Tasks that hold a slot."""
        return f"{self.prefix}firmq:slots:{limit}"

    def bucket(self, limit: str) -> str:
        """hash, owner: claim, release; until it is full again. Tokens of a rate limit, and when they were counted."""
        return f"{self.prefix}firmq:bucket:{limit}"

    def throttled(self, queue: str) -> str:
        """zset, owner: submit, claim, leave. Throttled tasks (in a wait queue, not the list), as in `pending`."""
        return f"{self.prefix}firmq:throttled:{queue}"

    def wait_queue(self, name: str) -> str:
        """zset, owner: submit, claim, leave. A wait queue (queue|limit|tenant), by place (`enter_wait_queue`)."""
        return f"{self.prefix}firmq:wait-queue:{name}"

    def wait_queues(self, group: str) -> str:
        """zset, owner: submit, claim. The tenants in the wait queues of queue|limit, by their last turn there."""
        return f"{self.prefix}firmq:wait-queues:{group}"

    def last_turn(self, lane: str) -> str:
        """zset, owner: claim; ten minutes. Tenants of a lane that competed, by their last turn in any wait queue."""
        return f"{self.prefix}firmq:turns:{lane}"

    FAIR = Key("firmq:fair", "set")
    """set, owner: submit, claim. Queues in which tenants currently take turns, or tasks with scores wait."""

    FAILURE_GROUPS = Key("firmq:failure-groups", "zset")
    """zset, owner: every script that dead-letters a task, or undoes that. Fingerprints by number of dead letters."""

    def failure_group(self, fingerprint: str) -> str:
        """zset, owner: as `FAILURE_GROUPS`. The dead letters of one group by their end."""
        return f"{self.prefix}firmq:failure-group:{fingerprint}"

    def first_seen(self, fingerprint: str) -> str:
        """string, owner: as `FAILURE_GROUPS`; 30 days after a group's last dead letter. When its first task failed."""
        return f"{self.prefix}firmq:first-seen:{fingerprint}"

    FAILURE_GROUP_OF = Key("firmq:failure-group-of", "hash")
    """hash, owner: as `FAILURE_GROUPS`. Each dead letter's fingerprint, apart from the record, which may be corrupt."""

    # --- Ours: batches ----------------------------------------------------------------------------------------------

    def batch(self, batch_id: str) -> str:
        """hash, owner: batch_open, and every script that moves a task; until its tasks are removed, at least a day.

        name, created_at, total, one count per state, ended, removed, max_running, stop_on_error, then, closed, done_at,
        stopped, stopped_at, work and work_at (progress of a cancel or a retry of all its tasks), next (the index after
        all reserved ones).
        """
        return f"{self.prefix}firmq:batch:{batch_id}"

    def batch_items(self, batch_id: str) -> str:
        """zset, owner: submit; as long as the batch. Its tasks by their place in it, including removed ones."""
        return f"{self.prefix}firmq:batch-items:{batch_id}"

    def batch_wait_queue(self, batch_id: str) -> str:
        """zset, owner: submit, and every script that moves a task. Tasks that wait for a slot of max_running."""
        return f"{self.prefix}firmq:batch-waiting:{batch_id}"

    BATCHES = Key("firmq:batches", "zset")
    """zset, owner: batch_open, batch_prune. All batches by creation."""

    OPEN_BATCHES = Key("firmq:batches:open", "zset")
    """zset, owner: batch_open, batch_close. Batches that are still open, by the last request of the sender."""

    EMPTY_BATCHES = Key("firmq:batches:empty", "zset")
    """zset, owner: batch_close, prune, purge. Batches without a task on record, by creation; removed after a day."""

    # --- Ours: between the components--------------------------------------------------------------------------------

    WAKEUP = Key("firmq:wakeup", "list")
    """list, owner: as `DEFERRED_WORK`; at most 64 long. Wake-up list: each entry wakes one idle worker of any queue."""

    def wakeup(self, lane: str) -> str:
        """list, owner: submit, promote; at most 64 long. Wake-up list of a lane; a lost entry delays a task by 4 s."""
        return f"{self.prefix}firmq:wakeup:{lane}"

    def control(self, worker: str) -> str:
        """list, owner: cancel, workers; an hour. Commands to one worker: `cancel ID`, `drain`, `look` (work for it)."""
        return f"{self.prefix}firmq:control:{worker}"

    def claim(self, claimant: str) -> str:
        """string, owner: claim; a minute. The last claim, so that a repeated command gets the same answer.

        A claimant is a worker, or, for its concurrent executors, its name with a `+`.
        """
        return f"{self.prefix}firmq:claim:{claimant}"

    def dispatched(self, claimant: str) -> str:
        """string, owner: submit_one, claim; a minute. The answer of a parked claim, as `claim` records it."""
        return f"{self.prefix}firmq:dispatched:{claimant}"

    PARKED_CLAIMS = Key("firmq:parked-claims", "zset")
    """zset, owner: claim, submit. Workers with a parked claim, longest idle first."""

    def parked_claim(self, claimant: str) -> str:
        """string, owner: claim, submit; a minute. A parked claim (JSON), answered by `submit_one.lua`.

        worker, token of its next claim, lease, room (bytes of data), takes (by lane, false for one that is full), kind
        of the lanes, patterns of others.
        """
        return f"{self.prefix}firmq:parked-claim:{claimant}"

    def direct_dispatch(self, worker: str) -> str:
        """channel: submit answers a parked claim here; `[token of the claim, its reply]` in JSON."""
        return f"{self.prefix}firmq:direct-dispatch:{worker}"

    SUBMISSION_CHECK = Key("firmq:submission-check", "string")
    """string, owner: submission_check; a minute. When a gateway last verified, by writing it, that Redis takes any."""

    QUEUES = Key("firmq:queues", "zset")
    """zset, owner: submit, queues_prune; QUEUE_RETENTION. Every queue of ours by its last use, to a minute.

    Those of QUEUES are ours without being here. It decides which queues a worker takes from; `RQ_QUEUES` has RQ's own
    too.
    """

    QUEUE_CREATORS = Key("firmq:queue-creators", "hash")
    """hash, owner: the gateway; permanent. The client of an API key that first named a queue, and when."""

    PAUSED = Key("firmq:paused", "hash")
    """hash, owner: pauses; permanent. Paused queues, and types as `type:NAME`: name to JSON with reason and times."""

    TYPE_SETS = Key("firmq:types:sets", "zset")
    """zset, owner: announce, types_publish, types_prune; TYPE_RETENTION. Sets of task types.

    By the last heartbeat of a worker that has them.
    """

    def type_set(self, digest: str) -> str:
        """hash, owner: as `TYPE_SETS`. Types of one set: name to version; @first (time of publication) and @host."""
        return f"{self.prefix}firmq:types:set:{digest}"

    TYPE_VERSIONS = Key("firmq:types:versions", "hash")
    """hash, owner: as `TYPE_SETS`. Versions in these sets: digest to JSON with the name and the schema of the data."""

    CONCURRENT_TYPES = Key("firmq:types:concurrent", "set")
    """set, owner: announce; permanent. Types of which an executor runs many tasks at a time (lane `QUEUE+`)."""

    TYPES_OF = Key("firmq:types:of", "hash")
    """hash, owner: workers. The set of each live worker; "-" while it takes no tasks."""

    WORKERS = Key("firmq:workers", "zset")
    """zset, owner: workers. Live workers by last heartbeat; the timeout job moves silent ones to `LOST_WORKERS`."""

    LOST_WORKERS = Key("firmq:workers:lost", "zset")
    """zset, owner: the timeout job; a week, at most 100. Workers that died or hung, by their last heartbeat."""

    REASSIGNED = Key("firmq:workers:reassigned", "zset")
    """zset, owner: reap; as long as its worker is on record. How many tasks each lost, now back in their queues."""

    def worker(self, name: str) -> str:
        """string (JSON), owner: the worker; until its clean shutdown, else a week. Its current work."""
        return f"{self.prefix}firmq:worker:{name}"

    DEPLOYS = Key("firmq:deploys", "zset")
    """zset, owner: announce; the living ones, and at most 200 others. Every APP_VERSION by when it first served."""

    DEPLOYS_SEEN = Key("firmq:deploys:seen", "zset")
    """zset, owner: announce; as `DEPLOYS`. The same by the last heartbeat of a worker that has it."""

    def version_ends(self, hour: int) -> str:
        """hash, owner: report; 26 hours. Attempts of one hour since 1970: `VERSION|TYPE|completed` and `failed`."""
        return f"{self.prefix}firmq:version-ends:{hour}"

    def throughput(self, minute: int) -> str:
        """hash, owner: submit, report, reap, announce; two hours. Counts of a minute since 1970: submitted, …"""
        return f"{self.prefix}firmq:throughput:{minute}"

    RECOVERY_CURSOR = Key("firmq:recovery", "hash")
    """hash, owner: recover; permanent. The position of the consistency check."""

    # --- Ours: users ------------------------------------------------------------------------------------------------

    AUDIT = Key("firmq:audit", "stream")
    """stream, owner: audit; about 10,000 entries. Actor, action, task, queue or worker, and reason."""

    DASHBOARD_SECRET = Key("firmq:dashboard:secret", "string")
    """string, owner: the dashboard; permanent. Signs its cookies in every process, unless a setting does."""

    def dashboard_session(self, digest: str) -> str:
        """string, owner: the dashboard; DASHBOARD_SESSION, or until sign-out. The user of a session, by its id's hash.

        Grants no access by itself: the cookie is signed, and carries a mark of the password
        (`dashboard/auth/sessions.py`).
        """
        return f"{self.prefix}firmq:dashboard:session:{digest}"

    def dashboard_activity(self, digest: str) -> str:
        """string, owner: the dashboard; DASHBOARD_IDLE after the last request of a person. Keeps a session alive."""
        return f"{self.prefix}firmq:dashboard:activity:{digest}"

    def api_key(self, key_id: str) -> str:
        """hash, owner: key_use; a year after the last request. When an API key was last used; its rate's tokens.

        used, tokens, at. Grants no access: `API_KEYS` and its file do (`shared/stores/api_keys.py`).
        """
        return f"{self.prefix}firmq:api-key:{key_id}"

    # --- Ours: housekeeping ------------------------------------------------------------------------------------------

    def lock(self, name: str) -> str:
        """hash, owner: the lock scripts; until the lock ends.

        Token, owner, thread, fence, acquired_at, until, cooldown_until, blocked_owner. Named after a housekeeping job,
        or `task.NAME` for the lock of a handler. Without a token it is not held: it is in its cooldown, or its last
        holder is blocked from it.
        """
        return f"{self.prefix}firmq:housekeeper:lock:{name}"

    LOCK_FENCES = Key("firmq:housekeeper:fences", "hash")
    """hash, owner: lock_acquire; permanent. Last fencing number of each lock; also the list of locks, at most 1,000."""

    LOST_LOCKS = Key("firmq:housekeeper:lost", "zset")
    """zset, owner: every script under a lock; permanent. Locks of housekeeping that a holder at work lost, by when."""

    PRESENCE = Key("firmq:presence", "zset")
    """zset, owner: housekeepers, submit_outbox; for a week. Housekeepers and relays, by their last report."""

    SCHEDULES = Key("firmq:schedules", "zset")
    """zset, owner: the schedule scripts; permanent. Names of all schedules, all with score 0, so in order of name."""

    SCHEDULES_DUE = Key("firmq:schedules:due", "zset")
    """zset, owner: the schedule scripts. Names of the schedules that are not paused, by their next time."""

    def schedule(self, name: str) -> str:
        """hash, owner: the schedule scripts; until it is removed.

        spec (JSON), revision, source (file or api), due, paused (JSON), last_due, last_task, fired, missed, overlaps.
        """
        return f"{self.prefix}firmq:schedule:{name}"

    SCHEDULES_MISSED = Key("firmq:schedules:missed", "zset")
    """zset, owner: schedule_fire; until the schedule is removed. Schedules that missed due times, by when last."""

    def schedule_runs(self, name: str) -> str:
        """hash, owner: the schedule scripts; until it is removed. Due time and state of its last 30 runs, by task."""
        return f"{self.prefix}firmq:schedules:runs:{name}"

    SCHEDULES_FOLLOWED = Key("firmq:schedules:followed", "zset")
    """zset, owner: schedule_fire, schedule_follow. Schedules whose runs may change their state, by the next look."""

    SCHEDULES_FAILING = Key("firmq:schedules:failing", "zset")
    """zset, owner: schedule_follow; until a run completes. Schedules by how many of their last runs failed in a row."""

    RQ_SCHEDULER_ENTRIES = Key("rq:scheduler:scheduled_jobs")
    """zset, owner: rq-scheduler's own code, rq_entry. The entries of RQ programs by their next time, in seconds."""

    RQ_SCHEDULER_LOCK = Key("rq:scheduler_lock")
    """string, owner: rq-scheduler's own code, the job `rq_scheduler`. Held by the process that enqueues due entries."""
