-- The record of a task, its indexes, and locks of housekeeping.

-- Returns the index of our own for tasks of this state.
local function index_key(state, queue)
  if state == 'pending' then return keys.pending(queue) end
  if state == 'scheduled' then return keys.scheduled(queue) end
  if state == 'retrying' then return keys.retrying(queue) end
  if state == 'running' then return keys.LEASES end
  if state == 'blocked' then return keys.BLOCKED end
  return keys.ended(state)
end

-- RQ's structures that mirror it; pending is a list and running has a member of its own, so neither is here.
local RQ_REGISTRY = {
  scheduled = keys.rq_scheduled(''), retrying = keys.rq_scheduled(''), blocked = keys.rq_deferred(''),
  completed = keys.rq_finished(''), failed = keys.rq_failed(''), cancelled = keys.rq_canceled(''),
  expired = keys.rq_canceled(''),
}
local RQ_STATUS = {
  scheduled = 'scheduled', retrying = 'scheduled', blocked = 'deferred', pending = 'queued', running = 'started',
  completed = 'finished', failed = 'failed', cancelled = 'canceled', expired = 'canceled',
}

local function by_name(values, names)
  for at = 1, #names do names[names[at]] = values[at] or nil end
  return names
end

-- Returns fields of a hash by their names; those that it lacks are nil.
local function hash(key, ...) return by_name(redis.call('HMGET', key, ...), {...}) end

-- A housekeeping step names its lock and carries the token ("" for neither). It is checked in the step that changes
-- data: a process that was suspended past the end of a lock cannot know that another one has taken it since.
local function lock_ended(lock, token)
  if not token or token == '' then return false end
  local v = hash(keys.lock(lock), 'token', 'until')
  local ended = v.token ~= token or (number_of(v['until']) or 0) <= now
  -- A full Redis may refuse the note; the step is refused all the same. A lock that a person took was not lost.
  if ended and string.sub(lock, 1, 5) ~= 'task.' and not redis.pcall('ZSCORE', keys.LOST_LOCKS, token) then
    redis.pcall('ZADD', keys.LOST_LOCKS, NOW, lock)
  end
  return ended
end
local LOCK_ENDED = {err = 'OUTLIVED the lock of this step has ended, or another process has taken it'}

-- Returns fields of a task's record in this order; nothing when the key is not a hash. For hot paths.
local function record_values(id, ...)
  local values = redis.pcall('HMGET', keys.rq_job(id), ...)
  if not values.err then return unpack(values) end
end

-- Returns fields of a task's record by their names; nil when the key is not a hash.
local function record(id, ...)
  local values = redis.pcall('HMGET', keys.rq_job(id), ...)
  if not values.err then return by_name(values, {...}) end
end

-- Pins a task to the version of its type that stored its steps. That one takes its data, whichever have refused it.
local function pin(id, t, version)
  if version ~= '' and t.pinned ~= version then redis.call('HSET', keys.rq_job(id), 'pinned', version) end
  if version ~= '' and t.refused then redis.call('HDEL', keys.rq_job(id), 'refused') end
end

-- Returns the answer to the first request with a key; where it is corrupt, the state of the task that it stored.
local function stored_answer(id, text)
  local readable, answer = pcall(cjson.decode, text)
  if readable and (type(answer) == 'string' or (type(answer) == 'table' and answer[3])) then return answer end
  local t = record(id, 'state')
  return t and t.state or 'pending'
end
