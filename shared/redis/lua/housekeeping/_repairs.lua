-- Part of `check_consistency.lua`: repairs of one task.

local function bring_home(id, state, queue, due)
  if state == 'running' then
    redis.call('ZADD', keys.LEASES, num(now + lease), id)
  elseif state == 'scheduled' or state == 'retrying' then
    enter(id, state, queue, number_of(due) or now)
  else
    local t = state == 'pending' and record(id, 'wait_queue')
    if t and t.wait_queue then
      redis.call('ZREM', keys.wait_queue(t.wait_queue), id)
      redis.call('ZREM', keys.rq_deferred(queue), id)
      redis.call('HDEL', keys.rq_job(id), 'wait_queue')
      redis.call('HSET', keys.rq_job(id), 'status', RQ_STATUS.pending)
    end
    enter(id, state, queue)
  end
  found('nowhere')
end

-- Scheduled and retrying share a registry of RQ: removing a task from one must not remove it from the other.
local function take_out(id, other, state, queue)
  if RQ_REGISTRY[other] ~= RQ_REGISTRY[state] then leave(id, other, queue, '')
  else redis.call('ZREM', index_key(other, queue), id) end
  found('in_two')
end

-- A limit that waits for a slot to be freed has none free: else nothing would wake its tasks.
local function check_wait(group)
  local limit = limit_of(group)
  if redis.call('ZSCORE', keys.LIMITS_DUE, group) ~= 'inf' or (limit and not has_slot(limit)) then return end
  redis.call('ZADD', keys.LIMITS_DUE, due_of(limit), group)
  found('nowhere')
end

-- A pending task is in the list's index, or throttled in an existing wait queue that is served.
local function is_throttled(id, queue)
  local score = redis.call('ZSCORE', keys.throttled(queue), id)
  if not score then return nil end
  local t = record(id, 'wait_queue', 'score') or {}
  local wait_queue = t.wait_queue or ''
  local lane, group, tenant = string.match(wait_queue, '^([^|]*)|([^|]*)|([^|]*)$')
  if not lane or queue_of(lane) ~= queue or group .. tenant == '' and not place_of(t.score)
    or redis.call('ZSCORE', keys.pending(queue), id) then
    leave_wait_queue(id, queue)
    found('in_two')
    return nil
  end
  if not redis.call('ZSCORE', keys.wait_queue(wait_queue), id) then found('nowhere') end
  enter_wait_queue(id, lane, group, tenant, score, t.score)
  if group ~= '' then check_wait(group) end
  return score
end

-- Checks the score of a task: its due time in a state that has one; elsewhere any valid time.
local function check_score(id, state, queue, score, due)
  if state == 'scheduled' or state == 'retrying' then
    if due == score or not due and score then return end
    enter_due(id, state, queue, due or now)
  elseif score and not (state == 'running' and score > now + 100 * lease) then return  -- the clock was set back
  elseif state == 'pending' then
    if redis.call('ZADD', index_key(state, queue), 'XX', 'CH', NOW, id) == 0 then return end
  elseif state == 'running' then
    redis.call('ZADD', keys.LEASES, num(now + lease), id)
  elseif ENDED[state] then
    redis.call('ZADD', index_key(state, queue), NOW, id)
  else return end
  found('misplaced')
end

-- Repairs slots: a running task has its slots, and no other task has any.
local function check_slots(id, state, t)
  for _, name in ipairs(limit_names(t.description, t.limit_key)) do
    local limit = limit_of(name)
    local there = redis.call('SISMEMBER', keys.slots(name), id) == 1
    if there and (state ~= 'running' or not (limit and limit.concurrency)) then
      free_slots(id)
      found('slot')
    elseif not there and state == 'running' and limit and limit.concurrency then
      redis.call('SADD', keys.slots(name), id)
      found('slot')
    end
  end
end
