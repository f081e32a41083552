-- @include _prelude _webhooks _relations _limits _types _worker_queues _job_end
-- Writes the outcomes of attempts. Each is accepted only from the holder of its lease: the token must be the task's own.
-- ARGV: now, worker, then eight per attempt:
--   id, token, outcome, next state of the task, delay in microseconds, record (JSON), error (JSON or ""), rq_result.
-- Outcomes are values of `Outcome` in `shared/domain/task.py`. The next state is one of:
--   completed (rq_result: the result for RQ, base64 of JSON, "" for null; error: the end of an RQ job, see `_job_end.lua`);
--   retrying, after the delay;
--   failed: to the dead letters (rq_result: the traceback for RQ);
--   cancelled (pending if the request for it was withdrawn since);
--   scheduled, for an interrupted attempt whose handler sleeps: in place of a delay comes the instant when the task runs
--   again; rq_result: its wait, "sleep NAME" or "signal NAME"; pending if that signal has come meanwhile, or if
--   Redis has lost that step;
--   pending, for two outcomes. An interrupted attempt costs the task neither a retry nor a crash; in place of a delay
--   it brings the time when the task was enqueued; rq_result: "" or a new number for the record, such as losses:4. With
--   losses the workers of the task were stopped soon after it began: from the fourth time in a row on it is delayed.
--   With suspicions its executor died, which ran others too. A refused one (the data does not fit the version of the
--   type that ran it, or there is none) brings that version in place of a delay, "" for none. While another live
--   version may take it, the task waits for a worker that has one, at no cost; otherwise it has failed.
-- A results key of another type loses its entry and stops nothing.
-- Returns per attempt 1 (written, now or by the same report before), 2 (written as cancelled, because that was
-- requested), 3 (refused, and waiting for another worker) or 0 (the lease was lost, nothing written).
local worker = ARGV[2]
write_even_when_full()
local stamp = iso(now)
local answer, counts = {}, {}
local done, finished, leases, started = {}, {}, {}, {}

local function end_as(id, state, attempt, about, error)
  set_state(id, 'running', state, 'ended_at', stamp, 'attempt:' .. attempt, about)
  if error ~= '' then redis.call('HSET', keys.rq_job(id), 'error', error) end
end

-- The writes for each next state; `interrupted` and `refused` both lead to pending.
local become = {}

function become.completed(id, queue, attempt, about, rq_result, job_end, _, _, unique)
  end_as(id, 'completed', attempt, about, '')
  redis.pcall('XADD', keys.rq_results(id), '*', 'type', '1', 'worker_name', worker, 'return_value', rq_result)
  done[#done + 1] = NOW
  done[#done + 1] = id
  release_unique(id, unique)
  if job_end ~= '' then return end -- RQ has the job itself
  finished[queue] = finished[queue] or {}
  table.insert(finished[queue], '+inf')
  table.insert(finished[queue], id)
end

function become.failed(id, queue, attempt, about, rq_result, error)
  end_as(id, 'failed', attempt, about, error)
  -- As many as RQ keeps: a dead letter may be requeued every night.
  redis.pcall('XADD', keys.rq_results(id), 'MAXLEN', 10, '*', 'type', '2', 'worker_name', worker,
    'exc_string', rq_result)
  enter_ended(id, 'failed', queue)
end

function become.cancelled(id, queue, attempt, about, _, error)
  end_as(id, 'cancelled', attempt, about, error)
  enter_ended(id, 'cancelled', queue)
end

function become.retrying(id, queue, attempt, about, _, error, delay, expires_at)
  local due = now + delay
  transition(id, 'running', 'retrying', queue, due, 'due_at', num(due), 'error', error)
  remember(id, attempt, about)
  watch_deadline(id, expires_at)
end

-- Makes a running task wait for the end of the tasks of a group that it has started; returns whether there are any.
local function await_children(id, group)
  local t, open = record(id, 'parents'), 0
  for _, child in ipairs(parents_of(t and t.parents)) do
    local state = child[3] == group and state_of(child[1]) or 'gone'
    if state ~= 'gone' and not ENDED[state] then
      redis.call('ZADD', keys.children(child[1]), NOW, id)
      open = open + 1
    end
  end
  if open > 0 then redis.call('HSET', keys.rq_job(id), 'open_parents', open) end
  return open > 0
end

function become.scheduled(id, queue, attempt, about, awaits, _, due, expires_at)
  remember(id, attempt, about)
  if expires_at then redis.call('HDEL', keys.rq_job(id), 'expires_at') end -- it has started in time
  local group = string.match(awaits, '^children (.*)$')
  if group and await_children(id, group) then
    transition(id, 'running', 'blocked', queue, nil, 'awaits', awaits)
    return 'blocked'
  end
  local kind, name = string.match(awaits, '^(%l+) (.*)$')
  local step = kind and not group and redis.call('HGET', keys.rq_job(id), 'step:' .. (kind == 'signal' and 'signal:' or '') .. name)
  if not step or (kind == 'signal' and not string.find(step, '^{"kind":"wait"')) then
    transition(id, 'running', 'pending', queue, NOW, 'token', '')
    return 'pending'
  end
  transition(id, 'running', 'scheduled', queue, due, 'due_at', num(due), 'awaits', awaits)
end

local AT_ONCE, LONGEST_PAUSE = 3, 300000000

-- Returns the task to the front: it was in front when it was claimed.
function become.interrupted(id, queue, attempt, about, rq_result, error, delay, expires_at)
  local field, times = string.match(rq_result, '^(%l+):(%d+)$')
  if field then redis.call('HSET', keys.rq_job(id), field, times) end
  local losses = field == 'losses' and tonumber(times)
  if losses and losses > AT_ONCE then
    local pause = math.min(LONGEST_PAUSE, 1000000 * 2 ^ (losses - AT_ONCE))
    become.retrying(id, queue, attempt, about, '', error, pause, expires_at)
    return 'retrying'
  end
  transition(id, 'running', 'pending', queue, delay > 0 and num(delay) or NOW, 'token', '')
  remember(id, attempt, about)
  watch_deadline(id, expires_at)
end

-- @insert _report_refusal
-- @insert _report_versions

local FAILURES = {failed = true, timed_out = true}

-- A requested cancel overrides a retry or the dead letters, but not a success.
local OVERRULED = {retrying = true, failed = true, pending = true, scheduled = true}

local function write(id, token, outcome, state, delay, about, error, rq_result)
  local holder, found, queue, attempt, cancel, expires_at, failures, crashes, unique, relations = record_values(id, 'token',
    'state', 'origin', 'attempt', 'cancel', 'expires_at', 'failures', 'crashes', 'unique', 'relations')
  -- A worker that was frozen past its lease loses its outcome here: the task has a new holder, and one result.
  if holder ~= token then return 0 end
  if found ~= 'running' then return 1 end
  -- Counted in any case: a task that was cancelled during a crash has crashed.
  if outcome == 'crashed' then bump(id, 'crashes', crashes, 1) end
  local overruled = cancel and OVERRULED[state]
  if overruled then state = 'cancelled' end
  -- The request was withdrawn after the worker had stopped the attempt.
  if state == 'cancelled' and not cancel then state, outcome, delay, rq_result = 'pending', 'interrupted', '0', '' end
  if state == 'pending' and outcome == 'refused' then state, error = judge_refusal(id, delay, error) end
  if state == 'completed' and error ~= '' and end_job(worker, id, error) then
    state, outcome, error, rq_result = 'pending', 'interrupted', '', ''
  end
  if state == 'retrying' and FAILURES[outcome] then bump(id, 'failures', failures, 1) end
  leases[#leases + 1] = id
  started[queue] = started[queue] or {}
  table.insert(started[queue], id .. ':' .. token)
  local way = state == 'pending' and outcome or state
  local delayed = become[way](id, queue, number_of(attempt) or 1, about, rq_result, error, tonumber(delay), expires_at,
    unique)
  counts[way] = (counts[way] or 0) + 1
  by_version.note(id, about, way)
  if limited then free_slots(id) end
  if relations then moved(id, 'running', delayed or state) end
  return overruled and 2 or way == 'refused' and 3 or 1
end

for at = 3, #ARGV, 8 do
  answer[#answer + 1] = write(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], ARGV[at + 4], ARGV[at + 5],
    ARGV[at + 6], ARGV[at + 7])
end

if #leases > 0 then redis.call('ZREM', keys.LEASES, unpack(leases)) end
for queue, members in pairs(started) do redis.call('ZREM', keys.rq_started(queue), unpack(members)) end
if #done > 0 then
  redis.call('ZADD', keys.ended('completed'), unpack(done))
  history.note(done)
end
for queue, members in pairs(finished) do redis.call('ZADD', keys.rq_finished(queue), unpack(members)) end
for what, n in pairs(counts) do count(what, n) end
by_version.write()
return answer
