-- @include _prelude _webhooks _relations _limits _types
-- Fails pending tasks whose data every version of their type has refused that was live in the last minute: the worker that
-- might have taken it is gone. Removes empty wait queues.
-- ARGV: now, lock and token of the caller, how many at most. Returns how many failed.
-- It examines so many wait queues, whichever they are; the others follow in one of the next runs.
local MOST_LIMITS = 100
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
write_even_when_full()
local most, ended, sets = tonumber(ARGV[4]), 0, recent_sets()

-- A type without a live worker is not hopeless: its tasks wait.
local function is_hopeless(group)
  local task_type, refused = worker_queue_parts(group)
  if not refused then return false end
  local lives = false
  for _, set in ipairs(sets) do
    if set_serves(set, group) then return false end
    lives = lives or version_of(set, task_type)
  end
  return lives
end

local function fail(id, queue)
  local t = record(id, 'refusal')
  local message = 'no live version of its type takes its data: ' .. (t and t.refusal or '?')
  transition(id, 'pending', 'failed', queue, nil, 'error', cjson.encode({type = 'InvalidData', message = message}))
  redis.call('HDEL', keys.rq_job(id), 'refused', 'refusal')
  ended = ended + 1
  moved(id, 'pending', 'failed')
end

-- Returns the first task of a wait queue and that queue's tenant; nil when it is empty.
local function first_of(lane, group)
  for _, tenant in ipairs(redis.call('ZRANGE', tenants_key(lane, group), 0, 9)) do
    local id = redis.call('ZRANGE', keys.wait_queue(wait_queue_name(lane, group, tenant)), 0, 0)[1]
    if id then return id, tenant end
    redis.call('ZREM', tenants_key(lane, group), tenant)
  end
end

local function end_wait_queue(lane, group)
  local queue = queue_of(lane)
  for _ = ended, most - 1 do
    local id, tenant = first_of(lane, group)
    if not id then return end
    redis.call('ZREM', keys.wait_queue(wait_queue_name(lane, group, tenant)), id)
    if redis.call('ZSCORE', keys.throttled(queue), id) then fail(id, queue) end
  end
end

local function look_at(group)
  local hopeless, waits = is_hopeless(group), false
  for _, lane in ipairs(lanes_with_tenants(group)) do
    if hopeless then end_wait_queue(lane, group) end
    waits = waits or first_of(lane, group) or redis.call('EXISTS', tenants_key(lane, group)) == 1
  end
  if not waits then redis.call('ZREM', keys.LIMITS_DUE, group) end
end

local groups = redis.call('ZRANDMEMBER', keys.LIMITS_DUE, MOST_LIMITS)
learn_versions(sets, groups)
for _, group in ipairs(groups) do
  if worker_queue_parts(group) then look_at(group) end
end
count('failed', ended)
return ended
