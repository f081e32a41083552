-- @include _prelude _webhooks _relations _limits _types _worker_queues _rows _job_end
-- Writes the outcomes of attempts. Each is accepted only from the holder of its lease: the token must be the task's own.
-- ARGV: now, worker, then the attempts as rows (see `_rows.lua`): id, token, and fields of `EndedAttempt`, which describes
--   them (`worker/executors/ipc.py`).
-- Two outcomes lead to pending. An interrupted attempt costs the task neither a retry nor a crash. A refused one (the data
-- does not fit the version of the type that ran it, or there is none) makes the task wait for a worker that has another
-- live version, at no cost; without one it has failed. A cancelled one leads to pending too if the request for it was
-- withdrawn since; a scheduled one if what it waits for has come meanwhile, or if Redis has lost that step.
-- A results key of another type loses its entry and stops nothing.
-- Returns per attempt 1 (written, now or by the same report before), 2 (written as cancelled, because that was
-- requested), 3 (refused, and waiting for another worker) or 0 (the lease was lost, nothing written).
local worker = ARGV[2]
write_even_when_full()
local stamp = iso(now)
local answer, counts = {}, {}
local done, finished, leases, started = {}, {}, {}, {}

local function end_as(state, ended, t)
  set_state(ended.id, 'running', state, 'ended_at', stamp, 'attempt:' .. t.attempt, ended.record)
  if t.error then redis.call('HSET', keys.rq_job(ended.id), 'error', t.error) end
end

-- The writes for each next state; `interrupted` and `refused` both lead to pending. `ended` is the reported attempt, and `t`
-- is of its task: the queue, the number of the attempt, its error, when the task expires, its unique key.
local become = {}

function become.completed(ended, t)
  local id = ended.id
  end_as('completed', ended, t)
  redis.pcall('XADD', keys.rq_results(id), '*', 'type', '1', 'worker_name', worker, 'return_value', ended.result or '')
  done[#done + 1] = NOW
  done[#done + 1] = id
  release_unique(id, t.unique)
  if ended.rq_job_end then return end -- RQ has the job itself
  finished[t.queue] = finished[t.queue] or {}
  table.insert(finished[t.queue], '+inf')
  table.insert(finished[t.queue], id)
end

function become.failed(ended, t)
  end_as('failed', ended, t)
  -- As many as RQ keeps: a dead letter may be requeued every night.
  redis.pcall('XADD', keys.rq_results(ended.id), 'MAXLEN', 10, '*', 'type', '2', 'worker_name', worker,
    'exc_string', ended.traceback or '')
  enter_ended(ended.id, 'failed', t.queue)
end

function become.cancelled(ended, t)
  end_as('cancelled', ended, t)
  enter_ended(ended.id, 'cancelled', t.queue)
end

local function retry_after(delay, ended, t)
  local due = now + delay
  transition(ended.id, 'running', 'retrying', t.queue, due, 'due_at', num(due), 'error', t.error or '')
  remember(ended.id, t.attempt, ended.record)
  watch_deadline(ended.id, t.expires_at)
end

function become.retrying(ended, t) retry_after(tonumber(ended.delay_us), ended, t) end

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

function become.scheduled(ended, t)
  local id, awaits, due = ended.id, ended.awaits or '', tonumber(ended.due_us)
  remember(id, t.attempt, ended.record)
  if t.expires_at then redis.call('HDEL', keys.rq_job(id), 'expires_at') end -- it has started in time
  local group = string.match(awaits, '^children (.*)$')
  if group and await_children(id, group) then
    transition(id, 'running', 'blocked', t.queue, nil, 'awaits', awaits)
    return 'blocked'
  end
  local kind, name = string.match(awaits, '^(%l+) (.*)$')
  local step = kind and not group and redis.call('HGET', keys.rq_job(id), 'step:' .. (kind == 'signal' and 'signal:' or '') .. name)
  if not step or (kind == 'signal' and not string.find(step, '^{"kind":"wait"')) then
    transition(id, 'running', 'pending', t.queue, NOW, 'token', '')
    return 'pending'
  end
  transition(id, 'running', 'scheduled', t.queue, due, 'due_at', num(due), 'awaits', awaits)
end

local AT_ONCE, LONGEST_PAUSE = 3, 300000000

-- Returns the task to the front: it was in front when it was claimed. One whose workers were stopped soon after it began is
-- delayed from the fourth time in a row on.
function become.interrupted(ended, t)
  local id, losses = ended.id, tonumber(ended.losses)
  if losses then redis.call('HSET', keys.rq_job(id), 'losses', ended.losses) end
  if ended.suspicions then redis.call('HSET', keys.rq_job(id), 'suspicions', ended.suspicions) end
  if losses and losses > AT_ONCE then
    retry_after(math.min(LONGEST_PAUSE, 1000000 * 2 ^ (losses - AT_ONCE)), ended, t)
    return 'retrying'
  end
  transition(id, 'running', 'pending', t.queue, ended.enqueued_us or NOW, 'token', '')
  remember(id, t.attempt, ended.record)
  watch_deadline(id, t.expires_at)
end

-- @insert _report_refusal
-- @insert _report_versions

local FAILURES = {failed = true, timed_out = true}

-- A requested cancel overrides a retry or the dead letters, but not a success.
local OVERRULED = {retrying = true, failed = true, pending = true, scheduled = true}

local function write(ended)
  local id, outcome, state = ended.id, ended.outcome, ended.state
  local holder, found, queue, attempt, cancel, expires_at, failures, crashes, unique, relations = record_values(id, 'token',
    'state', 'origin', 'attempt', 'cancel', 'expires_at', 'failures', 'crashes', 'unique', 'relations')
  -- A worker that was frozen past its lease loses its outcome here: the task has a new holder, and one result.
  if holder ~= ended.token then return 0 end
  if found ~= 'running' then return 1 end
  local t = {queue = queue, attempt = number_of(attempt) or 1, expires_at = expires_at, unique = unique, error = ended.error}
  -- Counted in any case: a task that was cancelled during a crash has crashed.
  if outcome == 'crashed' then bump(id, 'crashes', crashes, 1) end
  local overruled = cancel and OVERRULED[state]
  if overruled then state = 'cancelled' end
  -- The request was withdrawn after the worker had stopped the attempt.
  if state == 'cancelled' and not cancel then state, outcome = 'pending', 'interrupted' end
  if state == 'pending' and outcome == 'refused' then state, t.error = judge_refusal(id, ended.version, ended.error) end
  if state == 'completed' and ended.rq_job_end and end_job(worker, id, ended.rq_job_end) then
    state, outcome = 'pending', 'interrupted'
  end
  if state == 'retrying' and FAILURES[outcome] then bump(id, 'failures', failures, 1) end
  leases[#leases + 1] = id
  started[queue] = started[queue] or {}
  table.insert(started[queue], id .. ':' .. ended.token)
  local way = state == 'pending' and outcome or state
  local delayed = become[way](ended, t)
  counts[way] = (counts[way] or 0) + 1
  by_version.note(id, ended.record, way)
  if limited then free_slots(id) end
  if relations then moved(id, 'running', delayed or state) end
  return overruled and 2 or way == 'refused' and 3 or 1
end

for_each_row(3, function(ended) answer[#answer + 1] = write(ended) end)

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
