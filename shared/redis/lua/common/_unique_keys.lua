local ENDED = {completed = true, failed = true, cancelled = true, expired = true}

-- A unique key is held by one task until that task starts or ends, or for a time, whatever happens to the task. The
-- first two are a hash of keys to ids, freed in the step that starts or ends the task; an entry counts only if the
-- record agrees. The third is a key of Redis' own, which expires.

-- Returns the holder of a unique key, and the state of that task ("" when its record is removed).
local function unique_holder(key)
  local id = redis.call('HGET', keys.UNIQUE, key)
  if id then
    local t = record(id, 'state', 'unique')
    if t and t.state and t.unique == key and not ENDED[t.state] then return id, t.state end
  end
  id = redis.call('GET', keys.unique_for(key))
  local t = id and record(id, 'state')
  return id, t and t.state or ''
end

local draining
local function is_draining()
  if draining == nil then draining = redis.call('EXISTS', keys.DRAINING) == 1 end
  return draining
end

-- Raises PLACEMENT while this store is draining: another one then stores what nothing ties to this one.
local function demand_active()
  if is_draining() then error({err = 'PLACEMENT'}) end
end

local function hold_unique(id, key, until_)
  if tonumber(until_) then redis.call('SET', keys.unique_for(key), id, 'PX', until_)
  else redis.call('HSET', keys.UNIQUE, key, id) end
end

local function release_unique(id, key)
  if key and redis.call('HGET', keys.UNIQUE, key) == id then redis.call('HDEL', keys.UNIQUE, key) end
end

-- Restores the unique key of a task that waits again, unless another task has taken it since.
local function hold_unique_again(id, scopes)
  local t = record(id, 'unique', 'unique_until')
  if t and t.unique and scopes[t.unique_until] then redis.call('HSETNX', keys.UNIQUE, t.unique, id) end
end
