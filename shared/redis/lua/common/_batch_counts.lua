-- Part of `_relations.lua`: the counts of a batch.

-- Returns how many more of a batch may be pending or running; nil without a limit.
local function slots(batch)
  local v = hash(keys.batch(batch), 'max_running', 'pending', 'running')
  if not number_of(v.max_running) then return nil end
  return number_of(v.max_running) - (number_of(v.pending) or 0) - (number_of(v.running) or 0)
end

local function start_waiting(batch)
  -- A batch without a record, or without a limit, holds no task back.
  local room, counted = math.min(slots(batch) or 100, 100), redis.call('HEXISTS', keys.batch(batch), 'total') == 1
  while room > 0 do
    local id = redis.call('ZRANGE', keys.batch_wait_queue(batch), 0, 0)[1]
    if not id then return end
    redis.call('ZREM', keys.batch_wait_queue(batch), id)
    local t = record(id, 'state', 'origin', 'due_at')
    if t and t.state == 'blocked' then
      local to = enqueue(id, t.origin, t.due_at)
      if counted then
        redis.call('HINCRBY', keys.batch(batch), 'blocked', -1)
        redis.call('HINCRBY', keys.batch(batch), to, 1)
      end
      room = room - 1
    end
  end
end

local function finish_batch(batch)
  redis.call('HSET', keys.batch(batch), 'done_at', NOW)
  local id = redis.call('HGET', keys.batch(batch), 'then')
  local t = id and record(id, 'state', 'origin', 'due_at')
  if t and t.state == 'blocked' then enqueue(id, t.origin, t.due_at) end
end

-- Registers a batch without tasks on record, to be removed once it is old enough.
local function note_empty(batch)
  local b = hash(keys.batch(batch), 'total', 'removed', 'created_at')
  if b.total and (number_of(b.removed) or 0) >= (number_of(b.total) or 0) then
    redis.call('ZADD', keys.EMPTY_BATCHES, number_of(b.created_at) and b.created_at or NOW, batch)
  end
end

local function close_batch(batch)
  redis.call('ZREM', keys.OPEN_BATCHES, batch)
  local b = hash(keys.batch(batch), 'total', 'ended')
  if not b.total then return 0 end
  redis.call('HSET', keys.batch(batch), 'closed', '1')
  if (number_of(b.ended) or 0) >= (number_of(b.total) or 0) then finish_batch(batch) end
  note_empty(batch)
  return 1
end

-- Stops a batch: none of its tasks starts from here on; waiting ones are cancelled step by step.
local function stop_batch(batch, reason, work)
  redis.call('HSET', keys.batch(batch), 'stopped', reason, 'stopped_at', NOW, 'work', work, 'work_at', '-1')
  defer('batch:' .. batch)
end

-- Counts a task of a batch that changed its state.
local function recount(batch, from, to)
  local key = keys.batch(batch)
  local b = hash(key, 'total', 'max_running', 'stop_on_error', 'closed', 'stopped')
  if not b.total then return end
  redis.call('HINCRBY', key, from, -1)
  local there = redis.call('HINCRBY', key, to, 1)
  if ENDED[to] then
    local ended = ENDED[from] and 0 or redis.call('HINCRBY', key, 'ended', 1)
    if to == 'failed' and number_of(b.stop_on_error) and not b.stopped and there >= number_of(b.stop_on_error) then
      stop_batch(batch, there .. ' of its tasks failed', 'stop')
    end
    if b.closed and ended >= (number_of(b.total) or 0) then finish_batch(batch) end
  elseif ENDED[from] then
    redis.call('HINCRBY', key, 'ended', -1)
    redis.call('HDEL', key, 'done_at')
  end
  if b.max_running and SLOT[from] and not SLOT[to] then start_waiting(batch) end
end

local function stopped(batch)
  return redis.call('HGET', keys.batch(batch), 'stopped')
end
