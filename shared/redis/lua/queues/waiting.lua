-- @include _prelude _limits _types
-- Counts the reasons that throttle pending tasks; changes nothing. ARGV: now, how many wait queues to examine, then the queues.
-- Returns per queue and group {queue, reason ("limit", "pause", "turn", "busy", "handler" or "data"), its name, how many wait}:
--   of the first 500 groups, as many as that. "data" also has why the last version rejected the first task's data.
local budget, answer, sets = tonumber(ARGV[2]), {}, live_sets()
local asked = {}
for at = 3, #ARGV do asked[ARGV[at]] = true end

local function waiting(lane, group)
  local sum = 0
  if budget <= 0 then return sum end
  local tenants = redis.call('ZRANGE', tenants_key(lane, group), 0, budget)
  budget = budget - 1 - #tenants
  for _, tenant in ipairs(tenants) do sum = sum + redis.call('ZCARD', keys.wait_queue(wait_queue_name(lane, group, tenant))) end
  return sum
end

local lanes = {}
for _, key in ipairs(listed_lanes()) do
  local lane = lane_of_key(key)
  if asked[queue_of(lane)] then lanes[#lanes + 1] = lane end
end

local function refusal(lane, group)
  budget = budget - 3
  local tenant = redis.call('ZRANGE', tenants_key(lane, group), 0, 0)[1] or ''
  local id = redis.call('ZRANGE', keys.wait_queue(wait_queue_name(lane, group, tenant)), 0, 0)[1]
  local t = id and record(id, 'refusal')
  return t and t.refusal or ''
end

local function add(what, name, group)
  for _, lane in ipairs(lanes) do
    local found = waiting(lane, group)
    if found > 0 then answer[#answer + 1] = {queue_of(lane), what, name, found, what == 'data' and refusal(lane, group) or ''} end
  end
end

-- Returns whether live workers have the type of a wait queue, and all have refused the data of its tasks.
local function is_refused(task_type, refused)
  for _, set in ipairs(refused and sets or {}) do
    if version_of(set, task_type) then return true end
  end
end

local groups = redis.call('ZRANGE', keys.LIMITS_DUE, 0, 499)
learn_versions(sets, groups)
for _, group in ipairs(groups) do
  local task_type, refused = worker_queue_parts(group)
  if not task_type and redis.call('HEXISTS', keys.PAUSED, group) == 1 then add('pause', string.sub(group, 6), group)
  elseif not task_type then add('limit', group, group)
  elseif is_served(group, sets) then add('busy', task_type, group)
  else add(is_refused(task_type, refused) and 'data' or 'handler', task_type, group) end
end
add('turn', '', '')
return answer
