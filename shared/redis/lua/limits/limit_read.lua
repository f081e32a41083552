-- @include _prelude _limits _limit_changes
-- Shows limits; changes nothing. ARGV: now, then names (none: all).
-- Returns per limit: name, the limit (JSON), how many run, how many wait (of the first 1,000 tenants of each queue),
--   tokens in the bucket ("" without a rate), when to check it next ("" without waiting tasks).
local names = {unpack(ARGV, 2)}
if #names == 0 then names = redis.call('HKEYS', keys.LIMITS) end
table.sort(names)

local lanes = throttled_lanes()

local function waiting(name)
  local sum = 0
  for _, lane in ipairs(lanes) do
    for _, tenant in ipairs(redis.call('ZRANGE', tenants_key(lane, name), 0, 999)) do
      sum = sum + redis.call('ZCARD', keys.wait_queue(wait_queue_name(lane, name, tenant)))
    end
  end
  return sum
end

local answer = {}
for _, name in ipairs(names) do
  local text, limit = redis.call('HGET', keys.LIMITS, name), limit_of(name)
  if text and limit then
    answer[#answer + 1] = {name, text, redis.call('SCARD', keys.slots(name)), waiting(name),
      limit.tokens and string.format('%.3f', limit.tokens) or '', redis.call('ZSCORE', keys.LIMITS_DUE, name) or ''}
  end
end
return answer
