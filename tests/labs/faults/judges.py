"""The promises, each a judge who compares what was written down with what the API tells when all is over."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from redis import Redis

from firmq.shared.redis.client import text
from tests.labs.faults import kinds
from tests.labs.faults.case import AFTER_THAW, SECOND, Case
from tests.labs.faults.faults import Happened, command_of
from tests.labs.faults.handlers import FOUND, LINE, line
from tests.labs.faults.handlers_untidy import SLEEPS
from tests.labs.faults.ledger import Execution
from tests.labs.faults.recount import ENDED
from tests.labs.faults.rollback import untouched
from tests.labs.faults.site import KILL_GRACE
from tests.labs.faults.time_judges import (
    nothing_expires_early,
    nothing_is_retried_early,
    nothing_starts_early,
    records_tell_the_time,
)
from tests.support.keys import keys

ROUNDED = timedelta(milliseconds=1)
ON_ITS_WAY = SECOND // 20
"""Nanoseconds by which a record may be early: a worker learns Redis' time from an answer, which a relay may delay."""
"""The record of a lost attempt tells its times to a tenth of that."""
UNBEGUN = frozenset({"lost", "crashed", "interrupted"})
"""Outcomes that an attempt may have although no handler began."""
BYSTANDERS = ("gateway", "housekeeper", "dashboard", "redis", "data")
"""Victims of faults that end no attempt."""
_WITH_IT = ("", "crash")
"""How an execution ends with its process."""
_FAIL_EACH_TIME = kinds.MUST_DIE - {"crash"}
_ONE_LINE = frozenset({"untidy", "untidy-async"})
_BLOCKED, _STUCK, _MIXED_UP = "it blocked the event loop", "was stopped (stuck)", "for another task"
_DIED = re.compile(r"its executor, which ran \d+ tasks, died")
"""What the records of interrupted attempts say."""
STOPPED_WITHIN = 15 * SECOND
"""From the answer to a cancel until the attempt that it stops has ended, whatever else goes wrong."""
ENDED_WITHIN = int((kinds.LIMIT + KILL_GRACE + 2) * SECOND)
"""From the start of an attempt that does not end by itself."""
_NEW_TICKETS = re.compile(r"restored (\d+) lost queue entries")


# --- Accepted is kept ----------------------------------------------------------------------------------------------


def nothing_is_lost(case: Case) -> Iterator[str]:
    for task_id, asked in case.run.ledger.accepted.items():
        if task_id not in case.tasks:
            yield f"task {task_id} ({asked.kind}) was accepted and is gone"
    if case.run.stuck:
        yield f"long after the last fault there are tasks that have not ended: {dict(case.run.stuck)}"
    for task_id, task in case.tasks.items():
        if task["status"] not in ENDED:
            yield f"task {task_id} ({task['data']['kind']}) is {task['status']}, attempt {task['attempt']}"


def nothing_is_invented(case: Case) -> Iterator[str]:
    asked = case.run.ledger.asked
    for n, ids in case.by_number.items():
        if n not in asked:
            yield f"task {ids[0]} was sent by nobody"
        elif len(ids) > 1:
            yield f"number {n} ({asked[n].kind}) was sent once and is stored {len(ids)} times: {ids}"
        elif asked[n].said in ("refused", "existing"):
            yield f"task {ids[0]} ({asked[n].kind}) was answered as {asked[n].said} and is stored all the same"
        elif asked[n].said == "accepted" and ids[0] != asked[n].task_id:
            yield f"number {n} is stored as {ids[0]} and was answered as {asked[n].task_id}"


def what_was_run_is_stored(case: Case) -> Iterator[str]:
    for task_id in case.executions.keys() - case.tasks.keys():
        yield f"task {task_id} was run and is nowhere"


def what_completed_was_run(case: Case) -> Iterator[str]:
    for task_id, task in case.tasks.items():
        if task["status"] != "completed":
            continue
        ends = {each.attempt for each in case.executions.get(task_id, ()) if each.end == "complete"}
        if task["attempt"] not in ends:
            yield f"task {task_id} completed with attempt {task['attempt']}, which nobody ran to its end"
        if task["result"] != task["data"]["n"]:
            yield f"task {task_id} has the result {task['result']} of another"


# --- A lost lease cannot write ------------------------------------------------------------------------------------


def no_two_attempts_run_together(case: Case) -> Iterator[str]:
    for task_id, executions in case.executions.items():
        for one, other in pairwise(executions):
            if other.start_ns <= one.last_ns and not case.frozen_past(one, other.start_ns):
                both = (one.last_ns - other.start_ns) / SECOND
                yield f"task {task_id}: attempts {one.attempt} and {other.attempt} ran together for {both:.2f} s"


def no_attempt_is_begun_twice(case: Case) -> Iterator[str]:
    for task_id, executions in case.executions.items():
        for attempt, times in Counter(each.attempt for each in executions).items():
            if times > 1:
                yield f"task {task_id}: attempt {attempt} was begun {times} times"


# --- Every attempt is remembered -----------------------------------------------------------------------------------


def every_attempt_is_on_record(case: Case) -> Iterator[str]:
    for task_id, task in case.tasks.items():
        numbers = [attempt["number"] for attempt in task["attempts"]]
        if numbers != list(range(1, task["attempt"] + 1))[-50:]:
            yield f"task {task_id} ({task['status']}): attempt {task['attempt']}, on record are {numbers}"
        if missing := {each.attempt for each in case.executions.get(task_id, ())} - set(numbers):
            yield f"task {task_id} was run as attempt {missing}, which is not on record"


def records_say_what_was_done(case: Case) -> Iterator[str]:
    for task_id, task in case.tasks.items():
        ran = {each.attempt: each for each in case.executions.get(task_id, ())}
        for attempt in task["attempts"]:
            yield from _compare(case, task_id, attempt, ran.get(attempt["number"]))


def _compare(case: Case, task_id: str, attempt: Mapping[str, Any], ran: Execution | None) -> Iterator[str]:
    outcome = attempt["outcome"]
    wanted = {"completed": "complete", "failed": "fail"}.get(outcome)
    if outcome is None:
        yield f"task {task_id}: attempt {attempt['number']} has no outcome"
    elif ran is None and outcome not in UNBEGUN | {"cancelled"} and not (_refused(attempt) or _froze(case, attempt)):
        about = f"a {case.tasks[task_id]['type']}, {attempt['started_at']} to {attempt['ended_at']}, {attempt['error']}"
        yield f"task {task_id}: attempt {attempt['number']} is {outcome} on record, and nobody ran it ({about})"
    elif ran is not None and wanted and ran.end != wanted:
        yield f"task {task_id}: attempt {attempt['number']} is {outcome} on record and ended by {ran.end or 'nothing'}"
    # A worker is named after its host, its process and chance. Process 1 is the parent of an executor whose worker has
    # been killed, and which the watchdog has not ended yet; it can report nothing.
    orphaned = ran is not None and ran.worker == 1 and wanted is None
    if ran is not None and not orphaned and attempt["worker"].split("-")[-2] != str(ran.worker):
        yield f"task {task_id}: attempt {attempt['number']} is {attempt['worker']}'s on record and ran at {ran.worker}"


def _refused(attempt: Mapping[str, Any]) -> bool:
    """Whether a version of its type took its data for invalid, so that its handler was not called."""
    return bool(attempt["error"]) and attempt["error"]["type"] == "InvalidData"


def _froze(case: Case, attempt: Mapping[str, Any]) -> bool:
    """Whether it reached its time limit in a process that may have frozen between its start and its handler."""
    if attempt["outcome"] != "timed_out":
        return False
    began, ended = case.monotonic(attempt["started_at"]), case.monotonic(attempt["ended_at"])
    return any(each.frozen and each.begin_ns <= ended and each.end_ns >= began for each in case.run.happened)


def no_end_comes_before_the_last(case: Case) -> Iterator[str]:
    for task_id, task in case.tasks.items():
        early = [each["number"] for each in task["attempts"][:-1] if each["outcome"] == "completed"]
        if early:
            yield f"task {task_id} completed with attempt {early} and was run again"


# --- Attempts and dead letters are exact ---------------------------------------------------------------------------


def the_right_ones_are_dead(case: Case) -> Iterator[str]:
    failed = {task_id for task_id, task in case.tasks.items() if task["status"] == "failed"}
    if failed != case.dead:
        yield f"the dead letters are not the failed tasks: {sorted(failed ^ case.dead)[:5]}"
    cancelled = {deed.task_id for deed in case.run.ledger.deeds if deed.what == "cancel"}
    for task_id, task in case.tasks.items():
        kind = task["data"]["kind"]
        poisoned = task["crash_count"] >= kinds.MAX_CRASHES
        if task["status"] == "failed" and kind not in kinds.MUST_DIE and not poisoned:
            yield f"task {task_id} ({kind}) is a dead letter: {task['error']}"
        if task["status"] == "completed" and kind in kinds.MUST_DIE:
            yield f"task {task_id} ({kind}) completed"
        if task["status"] == "cancelled" and task_id not in cancelled and kind != "dependent":
            yield f"task {task_id} ({kind}) is cancelled, and nobody asked for it: {task['cancel_reason']}"
        if task["status"] == "expired" and kind != "expiring":
            yield f"task {task_id} ({kind}) expired"


def failures_are_counted_exactly(case: Case) -> Iterator[str]:
    certain, perhaps = case.sent_back
    for task_id, task in case.tasks.items():
        kind = task["data"]["kind"]
        failed = sum(each["outcome"] in ("failed", "timed_out") for each in task["attempts"])
        crashed = sum(each["outcome"] == "crashed" for each in task["attempts"])
        lives = range(certain[task_id] + 1, certain[task_id] + perhaps[task_id] + 2)
        if task["status"] == "failed" and task["crash_count"] < kinds.MAX_CRASHES and kind in _FAIL_EACH_TIME:
            each_time = kinds.RETRIES.get(kind, 0) + 1
            if failed not in [each_time * life for life in lives]:
                yield f"task {task_id} ({kind}) is dead after {failed} failures, sent back {certain[task_id]} times"
        if task["status"] == "completed":
            wanted = {"flaky": task["data"].get("failures", 0), "later": 1}.get(kind, 0)
            if failed != wanted:
                yield f"task {task_id} ({kind}) failed {failed} times instead of {wanted}"
        lost = sum(each["outcome"] == "lost" for each in task["attempts"])
        if lives.stop == 2 and not crashed <= task["crash_count"] <= crashed + lost:
            yield f"task {task_id}: {task['crash_count']} crashes are counted, {crashed} (and {lost} lost) on record"
        if kind == "crash" and task["status"] == "failed" and task["crash_count"] != kinds.MAX_CRASHES:
            yield f"task {task_id} (crash) is dead after {task['crash_count']} crashes"


# --- Neighbours ----------------------------------------------------------------------------------------------------


def nobody_finds_what_another_left(case: Case) -> Iterator[str]:
    for runs in case.executions.values():
        for each in runs:
            for found in (wrong for wrong in each.wrong if wrong.startswith(FOUND)):
                yield f"task {each.task_id} began in a process where another had left: {found.removeprefix(FOUND)}"


def nothing_outlives_its_attempt(case: Case) -> Iterator[str]:
    for runs in case.executions.values():
        for each in runs:
            n = case.tasks[each.task_id]["data"]["n"] if each.task_id in case.tasks else 0
            for pid in each.left:
                if f"{SLEEPS}.{n}" in command_of(pid):
                    yield f"task {each.task_id}: its child {pid} still lives"


def log_lines_are_their_own_tasks(case: Case) -> Iterator[str]:
    """And their progress: of threads too that a task left behind, and of many tasks at once in one process."""
    for task_id, task in case.tasks.items():
        own = line(task["data"]["n"])
        progress = (task["progress"] or {}).get("message", own)
        if progress.strip() != own.strip():
            yield f"task {task_id} has the progress of another: {progress!r}"
        for attempt in task["attempts"]:
            lines = [each for each in attempt.get("logs") or () if LINE in each]
            if others := [each for each in lines if own not in each]:
                yield f"task {task_id}: attempt {attempt['number']} has lines of another: {others[:3]}"
            if attempt["outcome"] == "completed" and len(lines) < 2 and task["data"]["kind"] not in _ONE_LINE:
                yield f"task {task_id}: attempt {attempt['number']} completed and has {len(lines)} of its lines"


def an_outage_is_nobodys_crash(case: Case) -> Iterator[str]:
    """Who loses a lease because Redis was unreachable has not crashed."""
    deaths = [each for each in case.run.happened if not each.victim.startswith(BYSTANDERS)]
    for task_id, task in case.tasks.items():
        ran = {each.attempt: each for each in case.executions.get(task_id, ())}
        for attempt in task["attempts"]:
            one = ran.get(attempt["number"])
            if one is None or attempt["outcome"] not in ("lost", "crashed") or one.end == "crash":
                continue
            if not any(_may_have_hit(case, fault, one, attempt["ended_at"]) for fault in deaths):
                ended = f"{attempt['outcome']} at {case.monotonic(attempt['ended_at'])}"
                yield f"task {task_id}: attempt {one.attempt} is {ended}, and only Redis was unreachable"


def _may_have_hit(case: Case, fault: Happened, one: Execution, ended_at: str) -> bool:
    """What thaws may begin what it had in hand before it learns that its lease has ended."""
    hit = bool({one.pid, one.worker} & set(fault.pids))
    ended = case.monotonic(ended_at) + ON_ITS_WAY
    return hit and fault.begin_ns <= ended and one.start_ns <= fault.end_ns + AFTER_THAW


def no_crash_is_charged_to_one_of_many(case: Case) -> Iterator[str]:
    """Who of those that ran together in a process ended it, nobody can know."""
    for pid, runs in case.by_process.items():
        ended_with_it = [each for each in runs if each.end in _WITH_IT]
        for each in ended_with_it if len(ended_with_it) > 1 else ():
            if (case.attempt_of(each) or {}).get("outcome") == "crashed":
                yield f"task {each.task_id}: attempt {each.attempt} has crashed on record, beside others in {pid}"


def nobody_is_interrupted_without_a_cause(case: Case) -> Iterator[str]:
    """A fault, or one of those beside it: the record says which."""
    deaths = [each for each in case.run.happened if not each.victim.startswith(BYSTANDERS)]
    for pid, runs in case.by_process.items():
        for each in runs:
            attempt = case.attempt_of(each) or {}
            if attempt.get("outcome") != "interrupted":
                continue
            kind, why = case.kinds[each.task_id], attempt["error"]["message"]
            others = [other for other in runs if other.end in _WITH_IT or other.last_ns >= each.start_ns]
            beside = {case.kinds.get(other.task_id) for other in others}
            if _BLOCKED in why:
                caused = kind == "blocking"
            elif _STUCK in why:
                caused = "stuck" in beside
            elif _DIED.match(why):
                hit = any(_may_have_hit(case, fault, each, attempt["ended_at"]) for fault in deaths)
                caused = hit or not beside.isdisjoint({"crash", None})
            else:
                caused = not (each.concurrent and _MIXED_UP in why)
            if not caused:
                yield f"task {each.task_id} ({kind}): attempt {each.attempt} in {pid} was interrupted: {why}"


# --- Keys, families, limits ----------------------------------------------------------------------------------------


def unique_is_unique(case: Case) -> Iterator[str]:
    holders = defaultdict(list)
    for task in case.tasks.values():
        if task["unique_key"] and task["ended_at"]:
            span = (_at(task["created_at"]), _at(task["ended_at"]), task["task_id"])
            holders[task["type"], task["unique_key"]].append(span)
    for (_, key), spans in holders.items():
        for one, other in pairwise(sorted(spans)):
            if other[0] < one[1]:
                yield f"tasks {one[2]} and {other[2]} held the unique key {key} at the same time"


def children_wait_for_parents(case: Case) -> Iterator[str]:
    for task_id, task in case.tasks.items():
        parents = [case.tasks.get(each["task_id"]) for each in task["depends_on"]]
        states = [parent["status"] for parent in parents if parent]
        if task["status"] == "completed" and task["data"]["kind"] == "dependent":
            # A parent that was sent back from the dead letters may have completed after its child was cancelled.
            if set(states) - {"completed"}:
                yield f"task {task_id} completed, and its parents are {states}"
            ends = [_at(parent["ended_at"]) for parent in parents if parent]
            # A claim that was answered the second time does not say since when its tasks had waited.
            enqueued_at = task["attempts"][0]["enqueued_at"]
            if ends and enqueued_at and _at(enqueued_at) + ROUNDED < max(ends):
                yield f"task {task_id} was enqueued at {enqueued_at}, before its parents had ended: {max(ends)}"
    for executions in case.executions.values():
        for each in executions:
            if wrong := [what for what in each.wrong if not what.startswith(FOUND)]:
                yield f"task {each.task_id} was told of its parents: {wrong}"


def batches_add_up(case: Case) -> Iterator[str]:
    for batch_id, numbers in case.run.ledger.batches.items():
        batch = case.batches.get(batch_id)
        if batch is None:
            yield f"batch {batch_id} is gone"
            continue
        if batch["status"] != "ended" or batch["total"] != len(numbers):
            yield f"batch {batch_id} of {len(numbers)} is {batch['status']} with {batch['total']} tasks"
        follower = case.by_number.get(case.run.ledger.followers.get(batch_id, -1), [])
        if batch_id in case.run.ledger.followers and len(follower) != 1:
            yield f"batch {batch_id} is followed by {follower}"
        ends = [case.tasks[each]["ended_at"] for n in numbers for each in case.by_number.get(n, ())]
        for each in follower:
            enqueued_at = next((one["enqueued_at"] for one in case.tasks[each]["attempts"]), None)
            if ends and enqueued_at and all(ends) and _at(enqueued_at) + ROUNDED < max(map(_at, ends)):
                yield f"batch {batch_id}: its follower was enqueued before all had ended"


def batches_are_closed(case: Case) -> Iterator[str]:
    """But for those whose sender gave up without an answer: they are closed after an hour."""
    for batch_id in map(text, case.run.site.admin.zrange(keys.OPEN_BATCHES, 0, -1)):
        if batch_id in case.run.ledger.batches:
            yield f"batch {batch_id} is still open"


def limits_hold(case: Case) -> Iterator[str]:
    """Counted at each start of a limited task, for its type: who has shown signs of life before and after."""
    limited = {task_id: task["type"] for task_id, task in case.tasks.items() if task["data"]["kind"] == "limited"}
    every = [each for each in case.run.ledger.executions() if each.task_id in limited]
    for each in every:
        same = (other for other in every if limited[other.task_id] == limited[each.task_id])
        running = [other for other in same if other.start_ns <= each.start_ns <= other.last_ns]
        if len(running) > 3 and not any(case.frozen_past(other, each.start_ns) for other in running):
            yield f"{len(running)} tasks ran at once under a limit of 3 when {each.task_id} began"


def no_worker_exceeds_its_queue_executors(case: Case) -> Iterator[str]:
    """Counted at each start, for each process of a worker: its successor does not count what it left running.

    All that run in its concurrent executors take none of those that it counts.

    No fault excuses more: a worker counts what it holds itself, and a killed executor holds its slot until it is dead.
    """
    running: dict[tuple[int, str], list[Execution]] = defaultdict(list)
    for each in case.run.ledger.executions():
        queue = case.tasks[each.task_id]["queue"] if each.task_id in case.tasks and not each.concurrent else ""
        most = case.run.site.queue_executors(each.worker).get(queue)
        if most is None:
            continue
        place = (each.worker, queue)
        running[place] = [*(other for other in running[place] if other.last_ns >= each.start_ns), each]
        if len(running[place]) > most:
            together = ", ".join(other.task_id for other in running[place])
            yield f"worker process {each.worker} ran tasks of {queue} at {len(running[place])} executors: {together}"


def who_is_cancelled_stops(case: Case) -> Iterator[str]:
    for deed in case.run.ledger.deeds:
        task = case.tasks.get(deed.task_id)
        if deed.what != "cancel" or deed.status not in (200, 202) or task is None:
            continue
        if deed.status == 200 and task["status"] != "cancelled":
            yield f"task {deed.task_id} was cancelled and is {task['status']}"
        if task["status"] not in ("cancelled", "completed", "failed"):
            yield f"task {deed.task_id} was to be cancelled and is {task['status']}"
        # Who was frozen and wakes up begins what it had in hand before it learns that its lease has ended.
        late = [each for each in case.executions.get(deed.task_id, ()) if each.start_ns > deed.told_ns]
        if deed.status == 200 and any(not case.frozen_past(each, each.start_ns) for each in late):
            yield f"task {deed.task_id} was begun after it had been cancelled"
        for each in case.executions.get(deed.task_id, ()):
            went_on = each.last_ns - deed.told_ns
            if each.start_ns < deed.told_ns and went_on > STOPPED_WITHIN:
                yield f"task {deed.task_id} went on for {went_on / SECOND:.1f} s after it had been cancelled"


def time_limits_hold(case: Case) -> Iterator[str]:
    """Of those that show signs of life until they are stopped; who is frozen, or beside one that blocks, is later."""
    for runs in case.by_process.values():
        blocking = [each for each in runs if case.kinds.get(each.task_id) == "blocking"]
        for each in (each for each in runs if case.kinds.get(each.task_id) in kinds.OVERDUE):
            blocked = sum(max(0, min(each.last_ns, one.last_ns) - max(each.start_ns, one.start_ns)) for one in blocking)
            took = each.last_ns - each.start_ns - blocked
            if took > ENDED_WITHIN and not case.was_frozen(each):
                yield f"task {each.task_id}: attempt {each.attempt} took {took / SECOND:.1f} s of {kinds.LIMIT:g} s"


# --- Jobs that are not ours ----------------------------------------------------------------------------------------


def jobs_of_rq_programs_are_kept(case: Case) -> Iterator[str]:
    redis = case.run.site.admin
    for job_id, queue in case.run.ledger.foreign.items():
        if not redis.exists(keys.rq_job(job_id)):
            yield f"RQ's job {job_id} is gone"
        elif redis.zscore(keys.foreign(queue), job_id) is None and job_id not in _listed(redis, queue):
            yield f"RQ's job {job_id} is in no structure of queue {queue}"


def _listed(redis: Redis, queue: str) -> set[str]:
    return {text(each) for each in redis.lrange(keys.rq_queue(queue), 0, -1)}


# --- The rest ------------------------------------------------------------------------------------------------------


def everything_adds_up(case: Case) -> Iterator[str]:
    yield from case.recount.complaints
    api = {task_id: task["status"] for task_id, task in case.tasks.items()}
    if api != case.recount.states:
        different = sorted(set(api.items()) ^ set(case.recount.states.items()))
        yield f"the API and the records differ: {different[:4]}"
    waiting = [queue for queue in case.queues if queue["pending"] or queue["scheduled"] or queue["retrying"]]
    if waiting:
        yield f"all is done, and queues show {waiting}"


def nothing_had_to_be_put_right(case: Case) -> Iterator[str]:
    """Steps are atomic, so recovery finds nothing but the tickets that we took away, and those once."""
    taken = sum(each.tickets for each in case.run.happened)
    given = 0
    for part in case.run.site.of("housekeeper"):
        for said in part.log.read_text(errors="replace").splitlines():
            if "tasks repaired" in said:
                yield f"{part.name}: {said.strip()}"
            elif found := _NEW_TICKETS.search(said):
                given += int(found[1])
    if given > taken:
        yield f"recovery gave {given} tasks a new ticket, and {taken} tickets were taken away"


def nobody_was_told_nonsense(case: Case) -> Iterator[str]:
    yield from case.run.ledger.odd


def nobody_died_by_itself(case: Case) -> Iterator[str]:
    yield from case.run.site.died
    last = max((each.end_ns for each in case.run.happened), default=0)
    if case.run.site.of("dashboard") and case.run.seen < last:
        yield "the dashboard has not answered since the last fault"


def _at(moment: str) -> datetime:
    return datetime.fromisoformat(moment)


Judge = Callable[[Case], Iterator[str]]
JUDGES: Sequence[Judge] = (
    nothing_is_lost,
    nothing_is_invented,
    what_was_run_is_stored,
    what_completed_was_run,
    no_two_attempts_run_together,
    no_attempt_is_begun_twice,
    every_attempt_is_on_record,
    records_say_what_was_done,
    no_end_comes_before_the_last,
    the_right_ones_are_dead,
    failures_are_counted_exactly,
    nothing_starts_early,
    nothing_is_retried_early,
    nothing_expires_early,
    records_tell_the_time,
    unique_is_unique,
    children_wait_for_parents,
    batches_add_up,
    batches_are_closed,
    limits_hold,
    no_worker_exceeds_its_queue_executors,
    nobody_finds_what_another_left,
    nothing_outlives_its_attempt,
    log_lines_are_their_own_tasks,
    no_crash_is_charged_to_one_of_many,
    nobody_is_interrupted_without_a_cause,
    time_limits_hold,
    an_outage_is_nobodys_crash,
    jobs_of_rq_programs_are_kept,
    who_is_cancelled_stops,
    everything_adds_up,
    nothing_had_to_be_put_right,
    nobody_was_told_nonsense,
    nobody_died_by_itself,
)


UNLESS_ROLLED_BACK: Sequence[Judge] = (
    what_was_run_is_stored,
    no_two_attempts_run_together,
    no_attempt_is_begun_twice,
    every_attempt_is_on_record,
    records_say_what_was_done,
    failures_are_counted_exactly,
    nothing_is_retried_early,
    no_crash_is_charged_to_one_of_many,
    nobody_is_interrupted_without_a_cause,
    an_outage_is_nobodys_crash,
)
"""These hold for tasks whose last step Redis has not taken back (`rollback.py`)."""


def judge_all(case: Case) -> dict[str, list[str]]:
    """What all judges have to complain of."""
    always = [each for each in JUDGES if each not in UNLESS_ROLLED_BACK]
    return judge(case, always) | judge(untouched(case), UNLESS_ROLLED_BACK)


def judge(case: Case, judges: Iterable[Judge]) -> dict[str, list[str]]:
    """What each judge has to complain of; those who have nothing are left out."""
    verdicts = {promise_of(each): list(each(case)) for each in judges}
    return {promise: complaints for promise, complaints in verdicts.items() if complaints}


def promise_of(judge: Judge) -> str:
    """What a judge looks after, in words."""
    return judge.__name__.replace("_", " ")
