"""Bugs to plant, at least one for each promise: a small change of the text, and the check that has to find it.

A check is a run of the laboratory with some of its faults, or tests by their names where a fault would find it by
chance only. A change whose place in the code is gone fails as well: it must be planted anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

LABORATORY = "laboratory"


@dataclass(frozen=True, slots=True)
class Check:
    """How a bug is looked for: the laboratory with these faults for so many seconds, or pytest with these arguments."""

    arguments: tuple[str, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Mutation:
    """A planted bug."""

    name: str
    promise: str
    path: str
    old: str
    new: str
    check: Check
    seen_by: tuple[str, ...] = ()
    """Judges of the laboratory one of whom must have something to complain of; none named: the check is of tests."""


def _laboratory(*faults: str, seconds: float = 14) -> Check:
    return Check(faults, seconds)


def _tests(*arguments: str) -> Check:
    return Check(arguments)


_FROZEN = _laboratory("worker frozen", "worker and executors frozen", seconds=24)
_KILLS = _laboratory("worker killed", "executor killed", seconds=10)
_UNANSWERED = _laboratory("answers to gateway lost", "redis frozen", "redis paused", seconds=22)
_CLOCKS = _laboratory("clock moved", seconds=24)
_QUIET = _laboratory("scripts flushed", seconds=8)
_SCRIPTS = "tests/integration/test_scripts.py"
_CONTRACT = "tests/integration/housekeeping/test_lock_contract.py"

MUTATIONS: Sequence[Mutation] = (
    Mutation(
        "report without lease check",
        "a lost lease cannot write",
        "shared/lua/report.lua",
        "  if not v or v[1] ~= token then return 0 end\n  if v[2] ~= 'running' then return 1 end",
        "  if not v then return 0 end",
        _FROZEN,
        (
            "nothing is lost",
            "no end comes before the last",
            "records say what was done",
            "every attempt is on record",
            "failures are counted exactly",
            "everything adds up",
            "nothing had to be put right",
        ),
    ),
    Mutation(
        "pop without lease",
        "accepted is kept",
        "shared/lua/claim.lua",
        "  if #leases > 0 then redis.call('ZADD', LEASES, unpack(leases)) end",
        "",
        _KILLS,
        ("nothing is lost", "nothing had to be put right"),
    ),
    Mutation(
        "release without owner check",
        "a lost lease cannot write",
        "shared/lua/release.lua",
        "  if not v or v[1] ~= token or v[2] ~= 'running' then return end",
        "  if not v or v[2] ~= 'running' then return end",
        _tests(_SCRIPTS),
    ),
    Mutation(
        "extend without token",
        "a lost lease cannot write",
        "shared/lua/extend.lua",
        "  if not v or v[1] ~= token or v[2] ~= 'running' then return 1 end",
        "  if not v or v[2] ~= 'running' then return 1 end",
        _tests(_SCRIPTS),
    ),
    Mutation(
        "promote twice",
        "housekeeping acts at most once at a time",
        "shared/lua/promote.lua",
        "  redis.call('ZREM', key, unpack(ids))\n",
        "",
        _QUIET,
        ("everything adds up", "no attempt is begun twice", "no end comes before the last", "nothing is lost"),
    ),
    Mutation(
        "unlock that lets two lead",
        "housekeeping acts at most once at a time",
        "shared/lua/lock_acquire.lua",
        "  if token ~= '' then return {'busy', v[3] or ''} end\n",
        "",
        _tests(_CONTRACT),
    ),
    Mutation(
        "lock released without its token",
        "housekeeping acts at most once at a time",
        "shared/lua/lock_release.lua",
        "if outlived(ARGV[2], ARGV[3]) then return 0 end\n",
        "",
        _tests(_CONTRACT),
    ),
    Mutation(
        "a housekeeping step without its lock",
        "housekeeping acts at most once at a time",
        "shared/lua/_prelude.lua",
        "  return v[1] ~= token or (number_of(v[2]) or 0) <= now\n",
        "  return false\n",
        _tests(_CONTRACT),
    ),
    Mutation(
        "recovery that drops",
        "accepted is kept",
        "shared/lua/recover.lua",
        "for at = #lost, 1, -1 do redis.call('LPUSH', list, lost[at]) end",
        "for at = #lost, 1, -1 do redis.call('ZREM', pend, lost[at]) end",
        _tests(_SCRIPTS),
    ),
    Mutation(
        "reap that drops",
        "accepted is kept",
        "shared/lua/reap.lua",
        "  redis.call('LPUSH', 'rq:queue:' .. queue, id)\n"
        "  redis.call('ZADD', 'taskqueue:pending:' .. queue, num(microseconds(v[9]) or now), id)\n",
        "",
        _KILLS,
        ("nothing is lost", "nothing had to be put right"),
    ),
    Mutation(
        "a retry that loses its attempt's record",
        "every attempt is remembered",
        "shared/lua/report.lua",
        "  remember(id, attempt, record)\n  enter_due",
        "  enter_due",
        _QUIET,
        ("every attempt is on record",),
    ),
    Mutation(
        "a lost attempt without a record",
        "every attempt is remembered",
        "shared/lua/reap.lua",
        "  remember(id, number_of(v[5]) or 1, record(v, why))\n",
        "",
        _KILLS,
        ("every attempt is on record",),
    ),
    Mutation(
        "a record by the executor's own clock",
        "every attempt is remembered",
        "worker/executor.py",
        "self._record(assignment, self.started_us + clock_offset_us, ended_us + clock_offset_us)",
        "self._record(assignment, time.time_ns() // 1000, time.time_ns() // 1000)",
        _CLOCKS,
        ("records tell the time",),
    ),
    Mutation(
        "a cancel that is ignored",
        "the task ends as it was told",
        "shared/lua/_links.lua",
        "  cancel_waiting(id, state, v[2], reason)\n  return {state, 'cancelled'}",
        "  return {state, 'cancelled'}",
        _QUIET,
        ("who is cancelled stops",),
    ),
    Mutation(
        "a dead letter that is not written",
        "accepted is kept",
        "shared/lua/_prelude.lua",
        "  redis.call('ZADD', 'taskqueue:' .. state, NOW, id)\n",
        "  if state ~= 'failed' then redis.call('ZADD', 'taskqueue:' .. state, NOW, id) end\n",
        _QUIET,
        ("the right ones are dead", "everything adds up"),
    ),
    Mutation(
        "a crash that is not counted",
        "a crash is not a failure of the task, until it is",
        "shared/lua/report.lua",
        "  if CRASHES[kind] then bump(id, 'crashes', v[8], 1) end\n",
        "",
        _QUIET,
        ("failures are counted exactly",),
    ),
    Mutation(
        "an idempotency key that nobody looks at",
        "sent once means stored once",
        "shared/lua/submit_one_once.lua",
        "if v[1] and v[2] then return {v[2] == ARGV[6] and 'stored' or 'again', v[2], kept_answer(v[2], v[3])} end\n",
        "",
        _UNANSWERED,
        ("nothing is invented",),
    ),
    Mutation(
        "a submission that is stored again when it is sent again",
        "sent once means stored once",
        "shared/lua/submit_one.lua",
        "if known then return known end\n",
        "",
        _tests(_SCRIPTS),
    ),
    Mutation(
        "a unique key that is not held",
        "unique is unique",
        "shared/lua/submit.lua",
        "  hold_unique(id, terms.unique, terms['until'])\n",
        "",
        _QUIET,
        ("unique is unique",),
    ),
    Mutation(
        "a limit that is not counted",
        "bounded everywhere",
        "shared/lua/_limits.lua",
        "    if limit and limit.free then limit.free = limit.free - redis.call('SADD', slots_key(name), id) end\n",
        "",
        _tests("tests/integration/test_limits.py"),
    ),
    Mutation(
        "a queue limit that nobody looks at",
        "bounded everywhere",
        "shared/lua/submit_one.lua",
        "  return 'full'\n",
        "",
        _tests(_SCRIPTS),
    ),
    Mutation(
        "a child that does not wait",
        "a task waits for those it depends on",
        "shared/lua/_links.lua",
        "  if state ~= 'gone' and not ENDED[state] then return 'wait' end\n",
        "  if state ~= 'gone' and not ENDED[state] then return 'met' end\n",
        _QUIET,
        ("children wait for parents",),
    ),
    Mutation(
        "a batch that miscounts",
        "counts equal a recount",
        "shared/lua/_links.lua",
        "  redis.call('HINCRBY', key, from, -1)\n",
        "",
        _QUIET,
        ("everything adds up",),
    ),
)
