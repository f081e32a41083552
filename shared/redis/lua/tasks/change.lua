-- @include _prelude _webhooks _relations
-- Changes a task that waits: its queue, its time, its data, its score.
-- ARGV: now, id, queue, due (microseconds since 1970, or with a leading + from now), data (RQ's call in JSON); each ""
--   to keep it; how many pending tasks the queue may hold (0: any number); "" or its new score.
-- Returns {state found ("" for unknown), 1 when it was changed, 2 when the queue is full}; the same when repeated.
write_even_when_full()
local id, to, data, most, score = ARGV[2], ARGV[3], ARGV[5], tonumber(ARGV[6]), ARGV[7]
local due = tonumber(ARGV[4])
if due and string.sub(ARGV[4], 1, 1) == '+' then due = due + now end
local t = record(id, 'state', 'origin', 'refused')
local state = t and t.state or ''
if not WAITING[state] then return {state, 0} end

-- Returns whether the task would be pending in the other queue, and that is full.
local function is_full()
  local at = due or state == 'pending' and now
  if most == 0 or to == '' or to == t.origin or state == 'blocked' or not at or at > now then return false end
  return redis.call('ZCARD', keys.pending(to)) + redis.call('ZCARD', keys.throttled(to)) >= most
end

-- It keeps the time at which it was enqueued.
local function change_score()
  redis.call('HSET', keys.rq_job(id), 'score', score)
  if state ~= 'pending' then return end
  local enqueued = redis.call('ZSCORE', keys.pending(t.origin), id) or redis.call('ZSCORE', keys.throttled(t.origin), id)
  leave(id, state, t.origin, '')
  enter(id, state, t.origin, enqueued or nil)
end

-- Data that versions of its type refused is offered to all of them again.
local function change_data()
  redis.call('HSET', keys.rq_job(id), 'data', data)
  redis.call('HINCRBY', keys.rq_job(id), 'amended', 1)
  if not t.refused then return end
  redis.call('HDEL', keys.rq_job(id), 'refused', 'refusal')
  if state == 'pending' then
    leave(id, state, t.origin, '')
    redis.call('HSET', keys.rq_job(id), 'status', RQ_STATUS[state])
    enter(id, state, t.origin)
  end
end

local function change_time(queue)
  if state == 'blocked' then
    redis.call('HSET', keys.rq_job(id), 'due_at', num(due))
  elseif due <= now then
    run_now_one(id)
  elseif state == 'pending' then
    transition(id, state, 'scheduled', queue, due, 'due_at', num(due))
    moved(id, state, 'scheduled')
  else
    leave(id, state, queue, '')
    redis.call('HSET', keys.rq_job(id), 'due_at', num(due))
    enter(id, state, queue, due)
  end
end

if is_full() then return {state, 2} end
if score ~= '' then change_score() end
if data ~= '' then change_data() end
if to ~= '' then move_one(id, to, 0) end
if due then change_time(to ~= '' and to or t.origin) end
return {state, 1}
