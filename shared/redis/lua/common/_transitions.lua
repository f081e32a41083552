-- Transitions: all changes of a task's state but the first, which `submit.lua` writes.

-- The legal ones, as `TRANSITIONS` of `shared/domain/task.py` has them. A new record has its first state without one.
local function check_transition(id, from, to)
  local LEGAL = [[
    scheduled>pending scheduled>blocked scheduled>cancelled scheduled>expired
    blocked>pending blocked>scheduled blocked>cancelled blocked>expired
    pending>running pending>scheduled pending>cancelled pending>expired pending>failed
    running>completed running>retrying running>failed running>cancelled running>pending running>scheduled running>blocked
    retrying>pending retrying>blocked retrying>cancelled retrying>expired
    failed>pending failed>blocked cancelled>pending cancelled>scheduled cancelled>blocked
  ]]
  if not string.find(LEGAL, from .. '>' .. to, 1, true) then
    error('task ' .. id .. ' cannot change from ' .. from .. ' to ' .. to, 0)
  end
end

-- Writes a task's state, and these other fields. For steps that write the indexes of many tasks together; others call
-- `transition`.
local function set_state(id, from, to, ...)
  check_transition(id, from, to)
  redis.call('HSET', keys.rq_job(id), 'state', to, 'status', RQ_STATUS[to], ...)
end

-- Adds a pending task to the end of its queue; in front with the place that it had when it was claimed. `lane` is that
-- of its type, where it is known.
local entered = {}
local function enter_queue(id, queue, place, lane)
  lane = lane or lane_for(queue, redis.call('HGET', keys.rq_job(id), 'description') or '')
  local before = entered[queue] or 0
  entered[queue] = before + 1
  redis.call(place and 'LPUSH' or 'RPUSH', keys.rq_queue(lane), id)
  list_lane(lane, id)
  redis.call('ZADD', keys.pending(queue), place or before == 0 and NOW or num(now + before), id)
  if before < 64 then notify_workers(1, lane) end
end

local function tenants_key(lane, group) return keys.wait_queues(lane .. '|' .. group) end
local function wait_queue_name(lane, group, tenant) return lane .. '|' .. group .. '|' .. tenant end

-- Returns the place of a score in a wait queue, beside the times of tasks without one: a score is in milliseconds, a time in
-- microseconds. Above 2^52 the places of neighbours would be the same double; from 2^40 on they are whole, as times are.
-- A corrupt score has none: the task waits as one without.
local function place_of(score)
  local x = tonumber(score)
  if not (x and x >= 0 and x <= 2^53) then return nil end
  return string.format(x < 2^40 and '%.17g' or '%.0f', x <= 2^52 and x * 1000 or 2^52 * 1000 + (x - 2^52) * 1024)
end

-- Moves a pending task that was enqueued at a time into a wait queue of a lane (see `_limits.lua`), where its score is its
-- place, if it has one. A new tenant comes after the waiting ones; tasks without one have the turns of the list.
local served = 0
local function enter_wait_queue(id, lane, group, tenant, enqueued, score)
  local wait_queue, queue = wait_queue_name(lane, group, tenant), queue_of(lane)
  redis.call('ZADD', keys.throttled(queue), enqueued, id)
  redis.call('ZADD', keys.wait_queue(wait_queue), place_of(score) or enqueued, id)
  served = served + 1
  redis.call('ZADD', tenants_key(lane, group), 'NX', group .. tenant == '' and 0 or num(now + served), tenant)
  mirror(RQ_REGISTRY.blocked, queue, '+inf', id)
  redis.call('HSET', keys.rq_job(id), 'wait_queue', wait_queue, 'status', 'deferred')
  list_lane(lane, id)
  if group == '' then redis.call('SADD', keys.FAIR, lane)
  else redis.call('ZADD', keys.LIMITS_DUE, 'NX', NOW, group) end
end

-- Adds a task to the structures of a state. `at` is its due time, or its place (see `enter_queue`). A pending one with a
-- score waits in the order of scores among its tenant's tasks.
local function enter(id, state, queue, at)
  if state == 'pending' then
    local t = record(id, 'description', 'score', 'fair_key') or {}
    local lane = lane_for(queue, t.description or '')
    if not place_of(t.score) then return enter_queue(id, queue, at, lane) end
    enter_wait_queue(id, lane, '', t.fair_key or '', at or NOW, t.score)
    notify_workers(1, lane)
  elseif state == 'scheduled' or state == 'retrying' then enter_due(id, state, queue, at)
  elseif state == 'blocked' then
    redis.call('ZADD', keys.BLOCKED, NOW, id)
    redis.call('ZADD', keys.rq_deferred(queue), '+inf', id)
  else enter_ended(id, state, queue) end
end

-- Moves a task from one state to another: its indexes, RQ's registries, and its record with these other fields. An
-- illegal transition is an error, before anything is written. Callers that end an attempt remove its lease, which has a token.
local function transition(id, from, to, queue, at, ...)
  check_transition(id, from, to)
  if from ~= 'running' then leave(id, from, queue, '') end
  if ENDED[to] then
    if from ~= 'running' then redis.call('ZREM', keys.DEADLINES, id) end
    set_state(id, from, to, 'ended_at', iso(now), ...)
  elseif to == 'pending' and not at then
    set_state(id, from, to, 'enqueued_at', iso(now), ...)
  else
    set_state(id, from, to, ...)
  end
  enter(id, to, queue, at)
end
