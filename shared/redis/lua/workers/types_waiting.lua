-- @include _prelude _limits _types
-- Shows the tasks that no live worker can run: all lack their type, or refused their data; changes nothing. ARGV: now.
-- Returns, of the first hundred such types in 500 wait queues, each type, how many wait (of the first 100 tenants of each queue)
-- and since when the first of them does.
local sets, by_type, answer = live_sets(), {}, {}

local function look(task_type, lane, group)
  local found = by_type[task_type]
  for _, tenant in ipairs(redis.call('ZRANGE', tenants_key(lane, group), 0, 99)) do
    local wait_queue = keys.wait_queue(wait_queue_name(lane, group, tenant))
    local first = redis.call('ZRANGE', wait_queue, 0, 0)[1]
    local since = first and (redis.call('ZSCORE', keys.throttled(queue_of(lane)), first) or NOW)
    if since and not found then
      if #answer == 100 then return end
      found = {task_type, 0, since}
      answer[#answer + 1], by_type[task_type] = found, found
    end
    if since then
      found[2] = found[2] + redis.call('ZCARD', wait_queue)
      if tonumber(since) < tonumber(found[3]) then found[3] = since end
    end
  end
end

local lanes = throttled_lanes()
local groups = redis.call('ZRANGE', keys.LIMITS_DUE, 0, 499)
learn_versions(sets, groups)
for _, group in ipairs(groups) do
  local task_type = worker_queue_parts(group)
  if task_type and not is_served(group, sets) then
    for _, lane in ipairs(lanes) do look(task_type, lane, group) end
  end
end
return answer
