-- @include _prelude _webhooks _relations _limits
-- Ends attempts whose lease has ended: their worker died, froze, or was cut off from Redis.
-- ARGV: now, how many at most, crashes after which a task is dead-lettered (MAX_CRASHES), lock and token of the caller, lease and
--   patience in microseconds: a call that comes later than that after the last one means an outage (0: nothing does).
-- A task known to have begun is charged with a crash. One that its worker may only have held is not: otherwise a task
-- that kills workers would take innocent tasks with it into the dead letters. It is marked as a suspect (losses), and
-- a suspect's next start is recorded before it happens, so a task that kills workers is charged from its second time on.
-- Returns one list per task: id, type, queue, worker, "pending" | "failed" | "cancelled", crashes, attempt, how long it
-- ran (microseconds), metadata.
local limit, max_crashes = tonumber(ARGV[2]), tonumber(ARGV[3])
if lock_ended(ARGV[4], ARGV[5]) then return LOCK_ENDED end
write_even_when_full()
local MAX_LOSSES = 20
local answer = {}

-- While Redis was unreachable (or its clock was set forward) no worker could extend a lease. So time between two calls beyond the
-- patience does not count, and for one lease after such an outage every lease is extended. In outages in quick succession
-- that happens once: the leases of dead workers still end.
local function outages(lease, patience)
  if patience == 0 then return 0 end
  local v = hash(keys.REAPER, 'beat', 'credit', 'until')
  local beat, credit, ends = number_of(v.beat) or 0, number_of(v.credit) or 0, number_of(v['until']) or 0
  local gap = now - beat
  if gap > patience then
    if beat > ends then credit = lease end
    credit, ends = credit + gap - patience, now + lease
  elseif now > ends or ends > now + lease then
    credit, ends = 0, 0
  end
  redis.call('HSET', keys.REAPER, 'beat', NOW, 'credit', num(credit), 'until', num(ends))
  return credit
end

-- The version is in the last heartbeat of the worker, if that is still there.
local function app_version(worker)
  local heartbeat = worker and redis.pcall('GET', keys.worker(worker))
  return type(heartbeat) == 'string' and string.match(heartbeat, '"app_version": "([%w._+:/@-]+)"') or nil
end

local function lost_attempt(t, why)
  return cjson.encode({
    worker = t.worker_name, enqueued_at = microseconds(t.enqueued_at), started_at = microseconds(t.started_at), ended_at = now, outcome = 'lost',
    error = {type = 'LeaseLost', message = why},
    app_version = app_version(t.worker_name),
    trace_id = string.match(t.meta or '', '"traceparent": ?"%x%x%-(' .. string.rep('%x', 32) .. ')%-'),
  })
end

local function dead(id, queue, why)
  transition(id, 'running', 'failed', queue, nil, 'error', cjson.encode({type = 'PoisonTask', message = why}))
  count('failed', 1)
  return 'failed'
end

-- A worker that shut down cleanly is on no list, so a count of the tasks that it lost would never be removed.
local function on_record(worker)
  return redis.call('ZSCORE', keys.WORKERS, worker) or redis.call('ZSCORE', keys.LOST_WORKERS, worker)
end

local function again(id, queue, t)
  transition(id, 'running', 'pending', queue, num(microseconds(t.enqueued_at) or now))
  watch_deadline(id, t.expires_at)
  if t.worker_name and on_record(t.worker_name) then redis.call('ZADD', keys.REASSIGNED, 'INCR', 1, t.worker_name) end
  return 'pending'
end

local function reap(id)
  redis.call('ZREM', keys.LEASES, id)
  local t = record(id, 'state', 'token', 'origin', 'description', 'attempt', 'begun', 'worker_name', 'started_at',
    'enqueued_at', 'expires_at', 'cancel', 'crashes', 'losses', 'meta')
  if not t or t.state ~= 'running' or not t.token or not t.origin then
    -- Its record is removed or has another state: its slots are freed.
    for _, name in ipairs(limited and redis.call('HKEYS', keys.LIMITS) or {}) do free_slot(name, id) end
    return
  end
  local queue, token, worker = t.origin, t.token, t.worker_name or '?'
  local begun = t.begun == token
  redis.call('ZREM', keys.rq_started(queue), id .. ':' .. token)
  redis.call('HSET', keys.rq_job(id), 'token', '')
  if limited then free_slots(id) end
  local why = 'worker ' .. worker .. ' stopped extending its lease: it was killed, frozen or cut off from Redis'
  remember(id, number_of(t.attempt) or 1, lost_attempt(t, why))
  local crashes = bump(id, 'crashes', t.crashes, begun and 1 or 0)
  local losses = bump(id, 'losses', t.losses, 1)
  local state
  if t.cancel then
    transition(id, 'running', 'cancelled', queue)
    count('cancelled', 1)
    state = 'cancelled'
  elseif crashes >= max_crashes then
    state = dead(id, queue, 'its worker died ' .. crashes .. ' times while it ran; the last: ' .. why)
  elseif losses >= MAX_LOSSES then
    state = dead(id, queue, 'its worker died ' .. losses .. ' times while it held the task; the last: ' .. why)
  else
    state = again(id, queue, t)
  end
  count('lost', 1)
  moved(id, 'running', state)
  local ran = now - (microseconds(t.started_at) or now)
  answer[#answer + 1] = {id, t.description or '', queue, worker, state, crashes, number_of(t.attempt) or 1, ran, t.meta or ''}
end

-- Latest first, because each goes to the front of its queue.
local over = num(now - outages(tonumber(ARGV[6] or 0), tonumber(ARGV[7] or 0)))
local ids = redis.call('ZRANGEBYSCORE', keys.LEASES, '-inf', over, 'LIMIT', 0, limit)
for at = #ids, 1, -1 do reap(ids[at]) end
return answer
