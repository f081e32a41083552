-- @include _prelude
-- Records the use of an API key, and takes tokens of its rate. A process takes a few at a time and comes back when they
-- are used up, so that not every request needs this script.
-- ARGV: now, id of the key, tokens a second, the maximum, how many are wanted (0: only record the use).
-- Returns {how many were taken, microseconds until the next}.
write_even_when_full()
local key = keys.api_key(ARGV[2])
local rate, most, wanted = tonumber(ARGV[3]) / 1000000, tonumber(ARGV[4]), tonumber(ARGV[5])
local granted, wait = 0, 0
if wanted > 0 then
  local v = hash(key, 'tokens', 'at')
  local since = math.max(0, now - (number_of(v.at) or now))
  local tokens = math.max(0, math.min(most, (number_of(v.tokens) or most) + since * rate))
  granted = math.min(wanted, math.floor(tokens + 0.000001))
  if granted < 1 then wait = math.ceil((1 - tokens) / rate) end
  redis.call('HSET', key, 'tokens', string.format('%.6f', tokens - granted), 'at', NOW)
end
redis.call('HSET', key, 'used', NOW)
redis.call('PEXPIRE', key, '31622400000')
return {granted, wait}
