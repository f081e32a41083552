-- @include _prelude _limits _limit_changes
-- Reads the shares of a partition in the limits of the system, and what they are used for. From here on, shares are set
-- there by no other process with a lower number.
-- ARGV: now, the number of the process (the term of its lock), a name for this reading: shares are set after the latest only.
-- A limit of a time with a single server is shared from here on: this partition has all of it.
-- Returns "outdated" if a process with a higher number was here; else per limit: name, its numbers, the slots and the part
--   of the rate (in millionths) of this partition, how many tasks run, 1 if tasks wait for it.
write_even_when_full()
local term = tonumber(ARGV[2])
if (number_of(redis.call('HGET', keys.LIMIT_SHARES, '')) or 0) > term then return 'outdated' end
redis.call('HSET', keys.LIMIT_SHARES, '', ARGV[2], 'reading', ARGV[3])
local answer, shares, limits = {}, redis.call('HGETALL', keys.LIMIT_SHARES), redis.call('HGETALL', keys.LIMITS)
for at = 1, #shares, 2 do shares[shares[at]] = shares[at + 1] end
for at = 1, #limits, 2 do
  local name = limits[at]
  local readable, spec = pcall(cjson.decode, limits[at + 1])
  if readable and type(spec) == 'table' then
    local own = limit_shares.numbers(spec)
    if not spec.shared then
      spec.shared = true
      redis.call('HSET', keys.LIMITS, name, cjson.encode(spec))
      shares[name] = num(math.ceil(number_of(spec.concurrency) or 0)) .. ' 1000000 ' .. own
      redis.call('HSET', keys.LIMIT_SHARES, name, shares[name])
    end
    local slots, part, numbers = limit_shares.read(name, shares[name] or '')
    if numbers ~= own then slots, part = 0, 0 end
    answer[#answer + 1] = {name, own, slots, part, redis.call('SCARD', keys.slots(name)),
      redis.call('ZSCORE', keys.LIMITS_DUE, name) and 1 or 0}
  end
end
return answer
