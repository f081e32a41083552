-- @include _prelude _limits _limit_changes
-- Sets the shares of a partition, and wakes the workers that wait for a larger one.
-- ARGV: now, the number of the process and the name of its reading as in `limit_shares_read.lua`, then per limit: name, its
--   numbers, slots, part of the rate in millionths.
-- A share of a limit with other numbers, with a lower number of the process, or after another reading is not set.
-- Returns per limit how many slots the partition may use from here on: its share, or the tasks that run where these are
--   more; -1 where nothing was set.
write_even_when_full()
local outdated = (number_of(redis.call('HGET', keys.LIMIT_SHARES, '')) or 0) > tonumber(ARGV[2])
  or redis.call('HGET', keys.LIMIT_SHARES, 'reading') ~= ARGV[3]
local answer = {}

local function set_share(name, numbers, slots, part)
  local readable, spec = pcall(cjson.decode, redis.call('HGET', keys.LIMITS, name) or '')
  if outdated or not readable or type(spec) ~= 'table' or limit_shares.numbers(spec) ~= numbers then return -1 end
  local before = limit_of(name)
  if before.tokens then
    -- Its tokens stay, as far as there is room for them; a missing bucket would count as a full one.
    before.tokens = math.min(before.tokens, spec.burst * part / 1000000)
    before.burst, before.rate = spec.burst, spec.count / (spec.per * 1000000)
    keep_tokens(before)
  end
  redis.call('HSET', keys.LIMIT_SHARES, name, slots .. ' ' .. part .. ' ' .. numbers)
  known_limits[name] = nil
  if lets_start(limit_of(name)) or part > 0 then recheck_limit(name) end
  return math.max(slots, redis.call('SCARD', keys.slots(name)))
end

for at = 4, #ARGV, 4 do
  answer[#answer + 1] = set_share(ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
end
return answer
