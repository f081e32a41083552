"""Bugs to plant, at least one for each guarantee: a small change of the text, and who has to find it.

Judges of the laboratory find it while some of its faults go on; tests, by their names, where a fault would find it by
chance only. A change whose place in the code is gone must be made anew: `test_mutations.py` sees that each fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.labs.faults.checks import Check
from tests.support.features import rows


@dataclass(frozen=True, slots=True)
class Mutation:
    """A planted bug."""

    name: str
    promise: str
    """The first words of a row of docs/guarantees.md."""
    path: str
    old: str
    new: str
    check: Check
    judges: tuple[str, ...] = ()
    """Of the laboratory: one of them must have something to complain of."""


def _laboratory(*faults: str, seconds: float) -> Check:
    return Check(faults, seconds)


def _tests(file: str, *names: str) -> Check:
    return Check(tests=tuple(f"tests/{file}.py::{name}" for name in names))


def _of_feature(name: str, promise: str, path: str, old: str, new: str, tests: tuple[str, ...]) -> Mutation:
    return Mutation(name, promise, path, old, new, _tests(*tests))


def _scripts(*names: str) -> Check:
    return _tests("integration/stores/test_scripts", *names)


def _locks(*names: str) -> Check:
    return _tests("integration/housekeeping/test_lock_contract", *names)


_FROZEN = _laboratory("worker frozen", "worker and executors frozen", seconds=24)
_KILLS = _laboratory("worker killed", "executor killed", seconds=10)
_UNANSWERED = _laboratory("answers to gateway lost", "redis frozen", "redis paused", seconds=22)
_CLOCKS = _laboratory("clock moved", seconds=24)
_AWAY = _laboratory("redis killed", "redis refusing connections", seconds=10)
_SLOW_DISK = _laboratory("redis killed in a slow fsync", seconds=24)
_UPDATES = _laboratory("application updated", seconds=16)
_RQ_PROGRAMS = _laboratory("jobs of RQ programs", seconds=6)
_UNTIDY = _laboratory("executor killed", seconds=16)
_QUIET = _laboratory("scripts flushed", seconds=8)
_TOGETHER = _laboratory("concurrent executor killed", seconds=20)
_LOAD = _tests("labs/load/test_steady", "test_nothing_grows_under_a_steady_load")

KEPT = "After 202 a task is stored"
CONFIRMED = "A killed Redis loses no acknowledged"
ONCE = "A claim or report that is sent twice"
LEASE = "A worker that lost its lease cannot write"
OUTBOX = "Each committed row of an [outbox]"
KEYED = "A request repeated with its `Idempotency-Key`"
UNIQUE = "No two tasks of a type hold the same"
LIMITS = "A limit is never exceeded"
CRASHES = "A handler that crashes its process"
TRACE = "One trace covers a task's whole life"
RECORDS = "Every attempt is on record"
NOTHING_SENT_RUNS = "No input is executed or unpickled"
KEYS = "Beyond loopback the API needs a valid key"
RQ_TOOLS = "RQ's tools can read"
NOTHING_FAST_WAITS = "A quick task does not wait"
PRIORITIES = "Higher priorities go first"
SCORES = "Tasks of one queue and one tenant"
QUEUE_SLOTS = "Long tasks leave executors free"
SCHEDULES = "Each due time of a schedule makes one task"
ONE_HOUSEKEEPER = "Only one of several housekeepers acts at a time"
HONEST_METRICS = "Counters over all processes add up"
MASTERS = "A failed Redis master"
FORMATS = "Two versions of the product"
REPLACED = "Workers replaced one after the other"
UPDATED = "No task fails because handlers are updated"
OUTAGES = "An outage of Redis does not count"
INHERITED = "Programs and processes that a handler starts"
GONE = "The data of a failed attempt"
POOLS = "A process pool that a module keeps"
HANGING_CALLS = "Hanging calls in threads"
LEFTOVERS = "Changes that a handler makes to its process"
FOREIGN = "Jobs that RQ programs put into these queues"
RQ_JOBS = "A job that an RQ program enqueued into"
PARENTS = "A task runs after its parents"
DRAIN = "SIGTERM lets running tasks finish"
BOUNDED = "Requests, queues and stored tasks"
STEADY = "Under a steady load nothing grows"
STEPS = "A stored step of a durable function"
DAMAGE = "A corrupted key or record harms no other task"

MUTATIONS: Sequence[Mutation] = (
    Mutation(
        "an answer before Redis has the task",
        KEPT,
        "shared/stores/queues.py",
        "            return [self.scripts.run_accepted(submission(tasks[0], bounds))]\n",
        "            try:\n"
        "                return [self.scripts.run_accepted(submission(tasks[0], bounds))]\n"
        "            except Exception:\n"
        "                return [read_submitted(tasks[0].id, b'pending')]\n",
        _AWAY,
        ("nothing is lost",),
    ),
    Mutation(
        "a row of an outbox without a receipt",
        OUTBOX,
        "shared/features/outbox/lua/submit_outbox.lua",
        "  if stored then redis.call('SET', keys.receipt(id), stored, 'PX', keep) end\n",
        "",
        _tests(
            "features/outbox/test_relay",
            "test_a_row_is_not_sent_again_by_a_relay_that_was_off_until_its_task_was_removed",
        ),
    ),
    Mutation(
        "pop without lease",
        KEPT,
        "shared/redis/lua/work/_claim_begin.lua",
        "  if #leases > 0 then redis.call('ZADD', keys.LEASES, unpack(leases)) end",
        "",
        _KILLS,
        ("nothing is lost", "nothing had to be put right"),
    ),
    Mutation(
        "reap that drops",
        KEPT,
        "shared/redis/lua/housekeeping/reap.lua",
        "  transition(id, 'running', 'pending', queue, num(microseconds(t.enqueued_at) or now))\n",
        "  set_state(id, 'running', 'pending')\n",
        _KILLS,
        ("nothing is lost", "nothing had to be put right"),
    ),
    Mutation(
        "a task that does not wait for its time",
        KEPT,
        "shared/redis/lua/housekeeping/promote.lua",
        "'-inf', NOW, 'WITHSCORES'",
        "'-inf', num(now + 2000000), 'WITHSCORES'",
        _QUIET,
        ("nothing starts early", "nothing is retried early"),
    ),
    Mutation(
        "a task that expires before its time",
        KEPT,
        "shared/redis/lua/housekeeping/expire.lua",
        "DEADLINES, '-inf', NOW,",
        "DEADLINES, '-inf', num(now + 2000000),",
        _QUIET,
        ("nothing expires early",),
    ),
    Mutation(
        "a task whose record goes when it completes",
        KEPT,
        "shared/redis/lua/work/report.lua",
        "  release_unique(id, t.unique)\n  if ended.rq_job_end then return end",
        "  redis.call('DEL', keys.rq_job(id))\n  if ended.rq_job_end then return end",
        _QUIET,
        ("what was run is stored",),
    ),
    Mutation(
        "recovery that drops",
        KEPT,
        "shared/redis/lua/housekeeping/recover.lua",
        "restore_entries(queue, lost)\n",
        "for at = #lost, 1, -1 do redis.call('ZREM', pend, lost[at]) end\n",
        _scripts("test_recovery_puts_back_exactly_the_tickets_that_are_missing"),
    ),
    Mutation(
        "a dead letter that is not written",
        KEPT,
        "shared/redis/lua/common/_enter.lua",
        "  redis.call('ZADD', keys.ended(state), NOW, id)\n",
        "  if state ~= 'failed' then redis.call('ZADD', keys.ended(state), NOW, id) end\n",
        _QUIET,
        ("the right ones are dead", "everything adds up"),
    ),
    Mutation(
        "a cancel that is ignored",
        KEPT,
        "shared/redis/lua/common/_requests.lua",
        "  cancel_waiting(id, state, t.origin, reason)\n  return {state, 'cancelled'}",
        "  return {state, 'cancelled'}",
        _QUIET,
        ("who is cancelled stops",),
    ),
    Mutation(
        "promote twice",
        ONE_HOUSEKEEPER,
        "shared/redis/lua/housekeeping/promote.lua",
        "  redis.call('ZREM', key, unpack(ids))\n",
        "",
        _QUIET,
        ("everything adds up", "no attempt is begun twice", "no end comes before the last", "nothing is lost"),
    ),
    Mutation(
        "a submission that is stored again when it is sent again",
        ONCE,
        "shared/redis/lua/tasks/submit_one.lua",
        "if known and not stopped then return known end\n",
        "",
        _scripts("test_a_task_sent_twice_is_stored_once"),
    ),
    Mutation(
        "a claim that takes more when it is sent again",
        ONCE,
        "shared/redis/lua/work/claim.lua",
        "  if last and string.sub(last, 1, #token) == token then\n",
        "  if false then\n",
        _scripts("test_a_claim_sent_again_with_its_token_gives_the_same_tasks"),
    ),
    Mutation(
        "report without lease check",
        LEASE,
        "shared/redis/lua/work/report.lua",
        "  if holder ~= ended.token then return 0 end\n  if found ~= 'running' then return 1 end",
        "  if not holder then return 0 end",
        _FROZEN,
        (
            "what completed was run",
            "every attempt is on record",
            "records say what was done",
            "no end comes before the last",
            "failures are counted exactly",
        ),
    ),
    Mutation(
        "release without owner check",
        LEASE,
        "shared/redis/lua/work/release.lua",
        "  if not t or t.token ~= token or t.state ~= 'running' then return end",
        "  if not t or t.state ~= 'running' then return end",
        _scripts("test_what_was_lost_can_neither_be_given_back_nor_extended"),
    ),
    Mutation(
        "a lease that ends while its task runs",
        LEASE,
        "shared/redis/lua/work/_claim_begin.lua",
        "iso(now), num(now + tonumber(ARGV[4]))",
        "iso(now), num(now + tonumber(ARGV[4]) / 10)",
        _QUIET,
        ("no two attempts run together",),
    ),
    Mutation(
        "extend without token",
        LEASE,
        "shared/redis/lua/work/extend.lua",
        "  if not t or t.token ~= token or t.state ~= 'running' then return 1 end",
        "  if not t or t.state ~= 'running' then return 1 end",
        _scripts("test_a_lease_is_extended_for_its_holder_only"),
    ),
    Mutation(
        "an idempotency key that nobody looks at",
        KEYED,
        "shared/redis/lua/tasks/submit_one_once.lua",
        "if v.fingerprint and v.task then\n",
        "if false then\n",
        _UNANSWERED,
        ("nothing is invented",),
    ),
    Mutation(
        "a unique key that is not claimed",
        UNIQUE,
        "shared/redis/lua/tasks/_submit_unique.lua",
        "  hold_unique(id, terms.unique, terms['until'])\n",
        "",
        _laboratory("scripts flushed", seconds=24),  # in less, no two of them may have met
        ("unique is unique",),
    ),
    Mutation(
        "a limit that is not counted",
        LIMITS,
        "shared/redis/lua/common/_limits.lua",
        "    if limit and limit.free then limit.free = limit.free - redis.call('SADD', keys.slots(name), id) end\n",
        "",
        _tests("integration/stores/test_limits", "test_the_limit_holds_and_other_tasks_pass"),
    ),
    Mutation(
        "a crash that is counted twice",
        CRASHES,
        "shared/redis/lua/work/report.lua",
        "  if outcome == 'crashed' then bump(id, 'crashes', crashes, 1) end\n",
        "  if outcome == 'crashed' then bump(id, 'crashes', crashes, 2) end\n",
        _QUIET,
        ("failures are counted exactly",),
    ),
    Mutation(
        "a retry that does not wait",
        CRASHES,
        "shared/redis/lua/work/report.lua",
        "  local due = now + delay\n",
        "  local due = now\n",
        _QUIET,
        ("nothing is retried early",),
    ),
    Mutation(
        "a worker that ends when Redis is away",
        CRASHES,
        "worker/engine/loop.py",
        '        link.next_try = now + PAUSE\n        self.metrics.errors["redis"] += 1\n',
        "        raise error\n",
        _AWAY,
        ("nobody died by itself",),
    ),
    Mutation(
        "a killer that lives once more",
        CRASHES,
        "worker/executors/crash_reports.py",
        "        if crashes >= self.max_crashes:\n",
        "        if crashes > self.max_crashes:\n",
        _QUIET,
        ("failures are counted exactly",),
    ),
    Mutation(
        "a retry that does not name the attempt before it",
        TRACE,
        "shared/observability/tracing.py",
        "    if subject.attempt < 2:\n        return None\n",
        "    return None\n",
        _tests("integration/observability/test_one_trace", "test_a_task_that_fails_twice_and_completes_is_one_trace"),
    ),
    Mutation(
        "a retry that loses its attempt's record",
        RECORDS,
        "shared/redis/lua/work/report.lua",
        "'error', t.error or '')\n  remember(ended.id, t.attempt, ended.record)\n",
        "'error', t.error or '')\n",
        _QUIET,
        ("every attempt is on record",),
    ),
    Mutation(
        "a lost attempt without a record",
        RECORDS,
        "shared/redis/lua/housekeeping/reap.lua",
        "  remember(id, number_of(t.attempt) or 1, lost_attempt(t, why))\n",
        "",
        _KILLS,
        ("every attempt is on record",),
    ),
    Mutation(
        "a record by the executor's own clock",
        RECORDS,
        "worker/executors/attempt.py",
        "        started_us = self.started_us + self.clock_offset_us\n        record",
        "        started_us = time.time_ns() // 1000 - run_us\n        record",
        _CLOCKS,
        ("records tell the time",),
    ),
    Mutation(
        "a record that is unpickled",
        NOTHING_SENT_RUNS,
        "shared/domain/task_data.py",
        "        function, _, (_, data), reference = json.loads(_inflated(stored))\n",
        "        import pickle\n\n        function, _, (_, data), reference = pickle.loads(_inflated(stored))\n",
        _tests("security/test_no_pickle", "test_planted_pickles_are_never_loaded"),
    ),
    Mutation(
        "a record that may name any function",
        NOTHING_SENT_RUNS,
        "shared/domain/task_data.py",
        "        if function not in (_FUNCTION, _BEFORE):\n",
        "        if False:\n",
        _tests("unit/shared/domain/test_task", "test_another_function_in_the_record_is_refused"),
    ),
    Mutation(
        "a scope that nobody looks at",
        KEYS,
        "gateway/auth/authenticator.py",
        "        if not key.may(scope):\n",
        "        if False:\n",
        _tests("integration/gateway/test_keys", "test_a_route_requires_its_scope"),
    ),
    Mutation(
        "a status for RQ that is not the task's",
        RQ_TOOLS,
        "shared/redis/lua/common/_transitions.lua",
        "'state', to, 'status', RQ_STATUS[to], ...)",
        "'state', to, 'status', 'started', ...)",
        _tests("integration/worker/test_rq_tools", "test_jobs_fetched_by_rq_show_the_state_of_the_api"),
    ),
    Mutation(
        "a priority that takes all",
        PRIORITIES,
        "shared/redis/lua/work/claim.lua",
        "quota = tonumber(ARGV[at + 1])",
        "quota = 500",
        _scripts("test_claims_follow_the_quotas_and_then_fill_up"),
    ),
    Mutation(
        "a score that orders nothing",
        SCORES,
        "shared/redis/lua/common/_transitions.lua",
        "place_of(score) or enqueued, id)",
        "enqueued, id)",
        _tests("integration/stores/test_scores", "test_no_two_scores_are_confused"),
    ),
    Mutation(
        "a queue that may use more executors than its own",
        QUEUE_SLOTS,
        "shared/redis/lua/work/claim.lua",
        "n = math.min(n, lane.most, want - before)",
        "n = math.min(n, want - before)",
        _tests(
            "integration/worker/test_queue_executors",
            "test_a_claim_takes_no_more_of_a_queue_than_it_may_and_fills_up_from_the_others",
        ),
    ),
    Mutation(
        "executors of a queue that are never counted as used",
        QUEUE_SLOTS,
        "worker/engine/queue_slots.py",
        "counts = Counter(each.queue for each in claimed)",
        "counts = Counter(each.queue for each in claimed[:0])",
        _QUIET,
        ("no worker exceeds its queue executors",),
    ),
    Mutation(
        "one executor of a queue too many",
        QUEUE_SLOTS,
        "worker/engine/queue_slots.py",
        "max(0, self.limits[queue] - used)",
        "self.limits[queue] - used + 1",
        _QUIET,
        ("no worker exceeds its queue executors",),
    ),
    Mutation(
        "a task of the concurrent lane that takes an executor of its queue too many",
        QUEUE_SLOTS,
        "worker/engine/lane.py",
        "            if not self.slots.may_start(claimed, share):\n",
        "            if False:\n",
        _tests("unit/worker/engine/test_lane", "test_a_task_from_the_other_lane_waits_for_the_executors_of_its_queue"),
    ),
    Mutation(
        "a parked claim for a queue whose executors are all in use",
        QUEUE_SLOTS,
        "shared/redis/lua/work/claim.lua",
        "takes[lane.name] = lane.most > 0 end",
        "takes[lane.name] = true end",
        _tests(
            "integration/worker/test_queue_executors",
            "test_a_parked_claim_is_answered_with_as_many_as_its_queue_has_executors_for",
        ),
    ),
    Mutation(
        "a slow task that keeps what is behind it",
        NOTHING_FAST_WAITS,
        "worker/executors/monitor.py",
        "        if ran > SLOW:\n",
        "        if False:\n",
        _tests("integration/worker/test_worker", "test_a_fast_task_behind_a_slow_one_moves_to_a_free_executor"),
    ),
    Mutation(
        "a worker that keeps what it cannot begin",
        NOTHING_FAST_WAITS,
        "worker/executors/monitor.py",
        "        self._reassign_waiting(now)\n",
        "",
        _tests("integration/worker/test_worker", "test_tasks_behind_an_isolated_one_move_to_another_worker"),
    ),
    Mutation(
        "a due time that is fired twice",
        SCHEDULES,
        "shared/redis/lua/schedules/schedule_fire.lua",
        "v.revision ~= ARGV[5] or v.due ~= due or v.paused",
        "v.revision ~= ARGV[5] or v.paused",
        _tests("integration/housekeeping/test_schedules", "test_a_step_sent_twice_after_a_lost_answer_changes_nothing"),
    ),
    Mutation(
        "unlock that lets two lead",
        ONE_HOUSEKEEPER,
        "shared/redis/lua/locks/lock_acquire.lua",
        "  if token ~= '' and not silent then return {'busy', v.owner or ''} end\n",
        "",
        _locks("test_only_one_instance_gets_a_lock"),
    ),
    Mutation(
        "a lock that is released without its token",
        ONE_HOUSEKEEPER,
        "shared/redis/lua/locks/lock_release.lua",
        "if lock_ended(ARGV[2], ARGV[3]) then return 0 end\n",
        "",
        _locks("test_a_late_holder_who_knows_nothing_cannot_release_anothers_lock"),
    ),
    Mutation(
        "a housekeeping step without its lock",
        ONE_HOUSEKEEPER,
        "shared/redis/lua/common/_records.lua",
        "  local ended = v.token ~= token or (number_of(v['until']) or 0) <= now\n",
        "  local ended = false\n",
        _locks("test_a_late_holders_steps_are_refused_where_data_changes"),
    ),
    Mutation(
        "a holder that trusts its lock beyond its end",
        ONE_HOUSEKEEPER,
        "shared/stores/locks.py",
        "TRUST = 0.8\n",
        "TRUST = 1.2\n",
        _locks("test_a_holder_stops_trusting_its_lock_before_it_can_end"),
    ),
    Mutation(
        "gauges of one who leads no more",
        HONEST_METRICS,
        "worker/housekeeping/metrics.py",
        "        if leads and measured and ",
        "        if measured and ",
        _tests("integration/housekeeping/test_jobs", "test_gauges_are_the_leaders_alone"),
    ),
    Mutation(
        "gauges that freeze",
        HONEST_METRICS,
        "worker/housekeeping/metrics.py",
        " and self.monotonic() - measured.at < (self.job.interval + PATIENCE).total_seconds():\n",
        ":\n",
        _tests("integration/housekeeping/test_jobs", "test_gauges_that_are_too_old_disappear"),
    ),
    Mutation(
        "an answer before the replicas have the task",
        MASTERS,
        "shared/redis/scripts.py",
        "        if copies < self.replicas:\n",
        "        if False:\n",
        _tests("integration/redis/test_troubles", "test_a_task_that_too_few_replicas_have_does_not_count_as_accepted"),
    ),
    Mutation(
        "a format that nobody looks at",
        FORMATS,
        "shared/redis/lua/common/_prelude.lua",
        "if stored_format ~= FORMAT then\n",
        "if false then\n",
        _tests("integration/redis/test_formats", "test_connections_made_before_the_format_changed_cannot_write"),
    ),
    Mutation(
        "a drain that waits for nobody",
        REPLACED,
        "worker/engine/loop.py",
        "        until = self.monotonic() + grace\n",
        "        until = self.monotonic()\n",
        _tests("integration/worker/test_worker", "test_sigterm_finishes_running_tasks_and_requeues_the_rest"),
    ),
    Mutation(
        "a drain that charges what it stops with a crash",
        DRAIN,
        "worker/executors/monitor.py",
        "            return self.crash_reports.stopped(claimed, began_at, self.drain_began_at)\n",
        "            return self.crash_reports.crashed(claimed, began_at, because)\n",
        _tests("integration/worker/test_worker", "test_a_second_sigterm_stops_at_once_and_loses_nothing"),
    ),
    Mutation(
        "a child that does not wait",
        PARENTS,
        "shared/redis/lua/common/_parents.lua",
        "  if state ~= 'gone' and not ENDED[state] then return 'wait' end\n",
        "  if state ~= 'gone' and not ENDED[state] then return 'met' end\n",
        _QUIET,
        ("children wait for parents",),
    ),
    Mutation(
        "a batch that miscounts",
        PARENTS,
        "shared/redis/lua/common/_batch_counts.lua",
        "  redis.call('HINCRBY', key, from, -1)\n",
        "",
        _QUIET,
        ("everything adds up",),
    ),
    Mutation(
        "a batch that is over when it was sent",
        PARENTS,
        "shared/redis/lua/common/_batch_counts.lua",
        "  if (number_of(b.ended) or 0) >= (number_of(b.total) or 0) then finish_batch(batch) end\n",
        "  finish_batch(batch)\n",
        _QUIET,
        ("batches add up",),
    ),
    Mutation(
        "a batch that nobody closes",
        PARENTS,
        "shared/stores/batches.py",
        "            batch_close(self.scripts, batch_id)\n",
        "            pass\n",
        _QUIET,
        ("batches are closed",),
    ),
    Mutation(
        "a batch whose tasks are stored again when they are sent again",
        KEYED,
        "shared/redis/lua/tasks/_submit_relations.lua",
        "    if t and t.state then return (t.data",
        "    if false then return (t.data",
        _tests("integration/gateway/test_batches", "test_a_batch_sent_again_by_its_indexes_adds_nothing_twice"),
    ),
    Mutation(
        "an outage that is told as a fault of ours",
        BOUNDED,
        "shared/submission/refusals.py",
        "    return STORE_REFUSED if isinstance(error, StoreRefused) else STORE\n",
        '    return Kind("internal-error", 500, "Internal error", "")\n',
        _AWAY,
        ("nobody was told nonsense",),
    ),
    Mutation(
        "a queue that takes any number of tasks",
        BOUNDED,
        "shared/redis/lua/tasks/submit_one.lua",
        "  return {'full'}\n",
        "",
        _scripts("test_a_full_queue_takes_no_task_that_comes_alone_either"),
    ),
    Mutation(
        "a history without an end",
        BOUNDED,
        "shared/redis/lua/common/_fields.lua",
        "  if attempt > 50 then redis.call('HDEL', keys.rq_job(id), 'attempt:' .. num(attempt - 50)) end\n",
        "",
        _scripts("test_only_the_last_fifty_attempts_are_kept"),
    ),
    Mutation(
        "a gateway that remembers every task",
        STEADY,
        "gateway/metrics.py",
        '        """Counts stored tasks."""\n',
        '        Metrics.count.__dict__.setdefault("leak", []).append(tasks)\n',
        _LOAD,
    ),
    Mutation(
        "a worker that remembers every task",
        STEADY,
        "worker/engine/claimed_task.py",
        "    claimed = []\n",
        "    claimed = []\n    read_claim.__dict__.setdefault('leak', []).extend(map(list, [*reply.tasks] * 2))\n",
        _LOAD,
    ),
    Mutation(
        "a key that every task leaves behind for an hour",
        STEADY,
        "shared/redis/lua/work/report.lua",
        "  release_unique(id, t.unique)\n",
        "  release_unique(id, t.unique)\n  redis.call('SET', 'firmq:parked-claim:left-' .. id, '', 'EX', 3600)\n",
        _LOAD,
    ),
    Mutation(
        "a batch that does not say when to try again",
        BOUNDED,
        "gateway/routes/batches.py",
        " if _refusals(answer) & _SOON else {}",
        " if False else {}",
        _tests("labs/load/test_flood", "test_a_flood_is_refused_beyond_the_limit_of_its_queue_only"),
    ),
    Mutation(
        "damage that is not told from a refusal",
        DAMAGE,
        "shared/redis/quarantine.py",
        "    return type(error) is ResponseError and not any(word in said for word in _OTHER_ERRORS)\n",
        "    return False\n",
        _tests("integration/quarantine/test_keys", "test_a_key_of_another_type_stops_no_part"),
    ),
    Mutation(
        "a busy Redis that counts as a wrong question",
        OUTAGES,
        "shared/redis/connections.py",
        ', "TRYAGAIN", "BUSY")\n',
        ', "TRYAGAIN")\n',
        _tests("integration/redis/test_troubles", "test_a_busy_redis_loses_no_outcome"),
    ),
    Mutation(
        "an answer while Redis holds back its write",
        CONFIRMED,
        "shared/redis/scripts.py",
        "        return name + CONFIRMING if self.confirm_writes else name\n",
        "        return name\n",
        _SLOW_DISK,
        ("nothing is lost",),
    ),
    Mutation(
        "a refusal that is final although another version takes the data",
        UPDATED,
        "shared/redis/lua/work/_report_refusal.lua",
        "  if is_served(worker_queue(task_type, refused), recent_sets()) then\n",
        "  if false then\n",
        _UPDATES,
        ("the right ones are dead", "failures are counted exactly"),
    ),
    Mutation(
        "a claim that takes what its worker cannot run",
        UPDATED,
        "shared/redis/lua/work/_claim_startable.lua",
        "  if not lacks(t[TYPE], t[REFUSED], t[PINNED]) then return false end\n",
        "  if true then return false end\n",
        _tests("integration/worker/test_type_versions", "test_a_thousand_unserved_groups_hide_no_served_one"),
    ),
    Mutation(
        "a foreign job that is dropped",
        FOREIGN,
        "shared/redis/lua/work/_claim_list.lua",
        "  spend(park_foreign(queue_of_lane[lane], strange))\n",
        "",
        _RQ_PROGRAMS,
        ("jobs of rq programs are kept",),
    ),
    Mutation(
        "a job of an RQ program that is not run again after its worker was killed",
        RQ_JOBS,
        "worker/features/rq/handler.py",
        "JobStatus.STOPPED, JobStatus.SCHEDULED)",
        "JobStatus.STOPPED, JobStatus.SCHEDULED, JobStatus.STARTED)",
        _tests("features/rq/test_plain_jobs", "test_a_started_job_whose_worker_was_killed_runs_again"),
    ),
    Mutation(
        "a job of an RQ program that waits forever for one that ended",
        RQ_JOBS,
        "shared/redis/lua/work/_job_end.lua",
        "  if redis.call('EXISTS', keys.rq_job(id .. ':dependents')) == 1 then return true end\n",
        "",
        _tests("features/rq/test_plain_jobs", "test_jobs_that_come_to_depend_on_a_running_one_are_enqueued"),
    ),
    Mutation(
        "leases that end while Redis is away",
        OUTAGES,
        "shared/redis/lua/housekeeping/reap.lua",
        "local over = num(now - outages(tonumber(ARGV[6] or 0), tonumber(ARGV[7] or 0)))\n",
        "local over = NOW\n",
        _tests("integration/worker/test_faults", "test_an_outage_of_redis_is_charged_to_no_task"),
    ),
    Mutation(
        "an executor that is kept although a coroutine holds its loop",
        LEFTOVERS,
        "worker/executors/coroutines.py",
        '            self.left = f"coroutines that ignore',
        '            _ = f"coroutines that ignore',
        _tests("unit/worker/executors/test_coroutines", "test_a_coroutine_that_ignores_being_cancelled_is_named"),
    ),
    Mutation(
        "a loop that is not watched while left tasks are cancelled",
        LEFTOVERS,
        "worker/executors/concurrent.py",
        "        self._left.add(running)\n",
        "",
        _tests("integration/worker/test_leftovers", "test_a_coroutine_that_swallows_its_cancellation_holds_up_nothing"),
    ),
    Mutation(
        "a limit that a coroutine may ignore",
        LEFTOVERS,
        "worker/executors/concurrent.py",
        "        self.loop.call_later(self.kill_grace, self._force, running)\n",
        "",
        _tests(
            "integration/worker/test_concurrent_executors",
            "test_one_that_ignores_its_limit_ends_and_the_others_lose_no_attempt_that_counts",
        ),
    ),
    Mutation(
        "suspects that run beside as many as before",
        LEFTOVERS,
        "worker/engine/claimed_task.py",
        "max(1, slots >> (self.suspicions + self.losses))",
        "slots",
        _tests(
            "integration/worker/test_concurrent_executors",
            "test_one_that_kills_its_executor_is_found_and_costs_no_other_its_life",
        ),
    ),
    Mutation(
        "a death that is charged to every task beside it",
        LEFTOVERS,
        "worker/executors/monitor.py",
        "        if many:\n",
        "        if False:\n",
        _TOGETHER,
        ("no crash is charged to one of many",),
    ),
    Mutation(
        "a cancel that reaches the wrong one of many",
        LEFTOVERS,
        "worker/executors/concurrent.py",
        "        if (one := self.running.get(number)) is None:\n",
        "        if (one := next(iter(self.running.values()), None)) is None:\n",
        _TOGETHER,
        ("nobody is interrupted without a cause", "who is cancelled stops"),
    ),
    Mutation(
        "context variables that attempts share",
        LEFTOVERS,
        "worker/executors/concurrent.py",
        "        self.context = copy_context()\n",
        '        self.context = Running.interrupt.__dict__.setdefault("context", copy_context())\n',
        _TOGETHER,
        ("nobody finds what another left", "log lines are their own tasks"),
    ),
    Mutation(
        "an outcome that is dropped when two come in one turn of the loop",
        RECORDS,
        "worker/executors/concurrent.py",
        "        self._outbox.append(ipc.frame(value))\n",
        "        self._outbox = [ipc.frame(value)]\n",
        _TOGETHER,
        ("nothing is lost",),
    ),
    Mutation(
        "a time limit that comes late beside others",
        LEFTOVERS,
        "worker/executors/concurrent.py",
        "self.loop.call_later(running.attempt.assignment.limit, ",
        "self.loop.call_later(running.attempt.assignment.limit + 5, ",
        _TOGETHER,
        ("time limits hold",),
    ),
    Mutation(
        "a due task that waits for executors of the other kind",
        NOTHING_FAST_WAITS,
        "shared/redis/lua/housekeeping/promote.lua",
        "      local lane = lane_for(queue, task_type or '')\n",
        "      local lane = queue\n",
        _tests("integration/stores/test_lanes", "test_promoted_tasks"),
    ),
    Mutation(
        "a blocked loop that is not interrupted",
        LEFTOVERS,
        "worker/executors/loop_watch.py",
        "                signal.pthread_kill(self._main, TIME_LIMIT_SIGNAL)\n",
        "                pass\n",
        _tests(
            "integration/worker/test_concurrent_executors",
            "test_one_that_blocks_the_loop_is_named_and_delays_the_others_by_at_most_two_seconds",
        ),
    ),
    Mutation(
        "async handlers on the loop that any handler can close",
        LEFTOVERS,
        "worker/executors/coroutines.py",
        "        if self._loop is None or self._loop.is_closed():\n            self._loop = new_loop(_THREADS)\n",
        "        if self._loop is None:\n"
        "            self._loop = new_loop(_THREADS)\n"
        "            asyncio.set_event_loop(self._loop)\n",
        _tests("unit/worker/executors/test_coroutines", "test_a_loop_that_was_closed_breaks_nothing_after_it"),
    ),
    Mutation(
        "a process that is not put right after an attempt",
        LEFTOVERS,
        "worker/executors/leftovers.py",
        "        changes = self._state.quick.restore()\n",
        "        changes: list[Change] = []\n",
        _UNTIDY,
        ("nobody finds what another left",),
    ),
    Mutation(
        "stray bytes that are taken for the length of a frame",
        LEFTOVERS,
        "worker/executors/ipc.py",
        "            if mark != _MARK or length > self.most:\n",
        "            if False:\n",
        _tests("unit/worker/executors/test_ipc", "test_a_frame_over_the_bound_is_an_error_before_it_is_complete"),
    ),
    Mutation(
        "lines that are recorded on whichever task runs",
        LEFTOVERS,
        "worker/executors/child.py",
        "addHandler(LogCapture())",
        "addHandler(LogCapture(lambda: executor.attempt.recorder if executor.attempt else None))",
        _UNTIDY,
        ("log lines are their own tasks",),
    ),
    Mutation(
        "processes that outlive their attempt",
        LEFTOVERS,
        "worker/executors/leftovers.py",
        "        if not self._end_children(handlers):\n",
        "        if False:\n",
        _tests(
            "integration/worker/test_leftovers",
            "test_a_process_that_a_handler_left_behind_ends_and_its_executor_does_not",
        ),
    ),
    Mutation(
        "signals that programs of handlers ignore",
        INHERITED,
        "worker/executors/own_signals.py",
        "        handle(number, _ignore)\n",
        "        handle(number, signal.SIG_IGN)\n",
        _tests(
            "integration/worker/test_plain_program", "test_a_handler_and_its_children_have_what_a_plain_program_has"
        ),
    ),
    Mutation(
        "data that the traceback of an error holds",
        GONE,
        "worker/executors/attempt.py",
        '        _OF_ERROR["__traceback__"].__set__(each, None)\n',
        "",
        _tests("integration/worker/test_leftovers", "test_the_data_of_a_failed_attempt_are_gone"),
    ),
    Mutation(
        "an executor that is kept although the processes of a pool were ended",
        POOLS,
        "worker/executors/children.py",
        "            self.missed = self.missed or _are_kept(new)\n",
        "",
        _tests("integration/worker/test_leftovers", "test_a_pool_of_processes_that_a_module_keeps_fails_no_later_task"),
    ),
    Mutation(
        "calls in threads that keep their threads from later tasks",
        HANGING_CALLS,
        "worker/executors/handlers_loop.py",
        "= self._threads + len(self._left)",
        "= self._threads",
        _tests("integration/worker/test_leftovers", "test_calls_in_threads_that_hang_do_not_starve_later_tasks"),
    ),
    Mutation(
        "processes that outlive their executor",
        LEFTOVERS,
        "worker/executors/process.py",
        "        names = process_tree.end([self.identity])\n",
        "        names: list[str] = []\n",
        _tests("integration/worker/test_process_trees", "test_processes_of_a_dead_executor_are_ended"),
    ),
    Mutation(
        "executors that outlive the trust in their worker",
        LEASE,
        "worker/executors/process_tree.py",
        "            end(overdue)\n",
        "",
        _tests(
            "integration/worker/test_process_trees",
            "test_a_worker_that_hung_past_its_leases_works_on_without_charging_its_task",
        ),
    ),
    Mutation(
        "lines of the log that go uncounted",
        BOUNDED,
        "shared/observability/background_log.py",
        "            self.dropped += 1\n",
        "",
        _tests(
            "unit/shared/observability/test_logs",
            "test_the_last_lines_of_a_process_are_written_in_order_and_dropped_ones_are_counted",
        ),
    ),
    Mutation(
        "a step that is stored again over its first result",
        STEPS,
        "shared/redis/lua/steps/step_save.lua",
        "if before and not replaces then return {'found', before, writes} end\n",
        "",
        _tests("integration/stores/test_steps", "test_a_step_is_stored_once"),
    ),
    Mutation(
        "a step that is stored without the lease",
        STEPS,
        "shared/redis/lua/steps/step_save.lua",
        "if not t or t.token ~= token or t.state ~= 'running' then return {'lost', ''} end\n",
        "if not t or t.state ~= 'running' then return {'lost', ''} end\n",
        _tests("integration/stores/test_steps", "test_a_lost_lease_can_neither_read_nor_write"),
    ),
    *(_of_feature(*row) for row in rows("MUTATIONS")),
)
