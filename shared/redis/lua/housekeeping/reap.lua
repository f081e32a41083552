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
local stamp = iso(now)
local answer = {}

-- While Redis was away (or its clock was set forward) no worker could extend a lease. So time between two calls beyond the
-- patience does not count, and for one lease after such an outage every lease is extended. In outages in quick succession
-- that happens once: the leases of dead workers still end.
local function outages(lease, patience)
  if patience == 0 then return 0 end
  local v = redis.call('HMGET', keys.REAPER, 'beat', 'credit', 'until')
  local beat, credit, ends = number_of(v[1]) or 0, number_of(v[2]) or 0, number_of(v[3]) or 0
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

local function record(v, why)
  return cjson.encode({
    worker = v[7], enqueued_at = microseconds(v[9]), started_at = microseconds(v[8]), ended_at = now, outcome = 'lost',
    error = {type = 'LeaseLost', message = why},
    trace_id = string.match(v[14] or '', '"traceparent": ?"%x%x%-(' .. string.rep('%x', 32) .. ')%-'),
  })
end

local function dead(id, queue, why)
  redis.call('HSET', keys.rq_job(id), 'state', 'failed', 'status', 'failed', 'ended_at', stamp, 'error',
    cjson.encode({type = 'PoisonTask', message = why}))
  enter_ended(id, 'failed', queue)
  count('failed', 1)
  return 'failed'
end

-- A worker that ended in order is on no list, so a count of the tasks that it lost would never be removed.
local function on_record(worker)
  return redis.call('ZSCORE', keys.WORKERS, worker) or redis.call('ZSCORE', keys.LOST_WORKERS, worker)
end

local function again(id, queue, v)
  redis.call('HSET', keys.rq_job(id), 'state', 'pending', 'status', 'queued')
  redis.call('LPUSH', keys.rq_queue(queue), id)
  redis.call('ZADD', keys.pending(queue), num(microseconds(v[9]) or now), id)
  watch_deadline(id, v[10])
  notify_workers(1, queue)
  if v[7] and on_record(v[7]) then redis.call('ZADD', keys.REASSIGNED, 'INCR', 1, v[7]) end
  return 'pending'
end

local function reap(id)
  redis.call('ZREM', keys.LEASES, id)
  local v = fields(id, 'state', 'token', 'origin', 'description', 'attempt', 'begun', 'worker_name', 'started_at',
    'enqueued_at', 'expires_at', 'cancel', 'crashes', 'losses', 'meta')
  if not v or v[1] ~= 'running' or not v[2] or not v[3] then
    -- Its record is removed or has another state: its slots are freed.
    for _, name in ipairs(limited and redis.call('HKEYS', keys.LIMITS) or {}) do free_slot(name, id) end
    return
  end
  local queue, token, worker = v[3], v[2], v[7] or '?'
  local begun = v[6] == token
  redis.call('ZREM', keys.rq_started(queue), id .. ':' .. token)
  redis.call('HSET', keys.rq_job(id), 'token', '')
  if limited then free_slots(id) end
  local why = 'worker ' .. worker .. ' stopped extending its lease: it was killed, frozen or cut off from Redis'
  remember(id, number_of(v[5]) or 1, record(v, why))
  local crashes = bump(id, 'crashes', v[12], begun and 1 or 0)
  local losses = bump(id, 'losses', v[13], 1)
  local state
  if v[11] then
    redis.call('HSET', keys.rq_job(id), 'state', 'cancelled', 'status', 'canceled', 'ended_at', stamp)
    enter_ended(id, 'cancelled', queue)
    count('cancelled', 1)
    state = 'cancelled'
  elseif crashes >= max_crashes then
    state = dead(id, queue, 'its worker died ' .. crashes .. ' times while it ran; the last: ' .. why)
  elseif losses >= MAX_LOSSES then
    state = dead(id, queue, 'its worker died ' .. losses .. ' times while it held the task; the last: ' .. why)
  else
    state = again(id, queue, v)
  end
  count('lost', 1)
  moved(id, 'running', state)
  local ran = now - (microseconds(v[8]) or now)
  answer[#answer + 1] = {id, v[4] or '', queue, worker, state, crashes, number_of(v[5]) or 1, ran, v[14] or ''}
end

-- Latest first, because each goes to the front of its queue.
local over = num(now - outages(tonumber(ARGV[6] or 0), tonumber(ARGV[7] or 0)))
local ids = redis.call('ZRANGEBYSCORE', keys.LEASES, '-inf', over, 'LIMIT', 0, limit)
for at = #ids, 1, -1 do reap(ids[at]) end
return answer
