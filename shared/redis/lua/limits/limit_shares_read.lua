-- @include _prelude _limits _limit_changes
-- Reads the shares of a partition in the limits of the system, and what they are used for. From here on, shares are set
-- there by no other process with a lower number.
-- ARGV: now, the number of the process (the term of its lock).
-- A limit of a time with a single server is shared from here on: this partition has all of it.
-- Returns "outdated" if a process with a higher number was here; else per limit: name, its numbers, the slots and the part
--   of the rate (in millionths) of this partition, how many tasks run, 1 if tasks wait for it.
write_even_when_full()
local term = tonumber(ARGV[2])
if (number_of(redis.call('HGET', keys.LIMIT_SHARES, '')) or 0) > term then return 'outdated' end
redis.call('HSET', keys.LIMIT_SHARES, '', ARGV[2])
local answer = {}
for _, name in ipairs(redis.call('HKEYS', keys.LIMITS)) do
  local readable, spec = pcall(cjson.decode, redis.call('HGET', keys.LIMITS, name))
  if readable and type(spec) == 'table' then
    if not spec.shared then
      spec.shared = true
      redis.call('HSET', keys.LIMITS, name, cjson.encode(spec))
      local slots = num(math.ceil(number_of(spec.concurrency) or 0))
      redis.call('HSET', keys.LIMIT_SHARES, name, slots .. ' 1000000 ' .. limit_shares.numbers(spec))
    end
    local slots, part, numbers = limit_shares.read(name)
    local own = limit_shares.numbers(spec)
    if numbers ~= own then slots, part = 0, 0 end
    answer[#answer + 1] = {name, own, slots, part, redis.call('SCARD', keys.slots(name)),
      redis.call('ZSCORE', keys.LIMITS_DUE, name) and 1 or 0}
  end
end
return answer
