-- How a task leaves the structures of its state.

-- Removes a throttled task from its wait queue (see `_limits.lua`).
local function leave_wait_queue(id, queue)
  if redis.call('ZREM', keys.throttled(queue), id) == 0 then return end
  local t = record(id, 'wait_queue')
  if t and t.wait_queue then
    redis.call('ZREM', keys.wait_queue(t.wait_queue), id)
    redis.call('HDEL', keys.rq_job(id), 'wait_queue')
  end
  redis.call('ZREM', keys.rq_deferred(queue), id)
end

-- Lists a scheduled task among those that wait for a signal, by the end of that wait; without one removes it from them.
local function list_wait(id, due)
  local t = record(id, 'awaits')
  local signal = string.match(t and t.awaits or '', '^signal (.*)$')
  for _, key in ipairs(signal and {keys.AWAITING, keys.awaiting(signal)} or {}) do
    if due then redis.call('ZADD', key, num(due), id) else redis.call('ZREM', key, id) end
  end
end

-- Removes a task from the structures of its state.
local function leave(id, state, queue, token)
  local there = redis.call('ZREM', index_key(state, queue), id)
  if state == 'pending' and there == 0 then leave_wait_queue(id, queue) end
  if state == 'running' then
    redis.call('ZREM', keys.rq_started(queue), id .. ':' .. token)
  elseif RQ_REGISTRY[state] then
    redis.call('ZREM', RQ_REGISTRY[state] .. queue, id)
  end
  if state == 'failed' then leave_failure_group(id) end
  if state == 'scheduled' then list_wait(id) end
end
