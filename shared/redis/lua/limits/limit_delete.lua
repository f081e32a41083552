-- @include _prelude _limits _limit_changes
-- Removes a limit. After one set at run time the declared one takes effect; a declared one is removed too, and comes back
-- when a worker declares it the next time. ARGV: now, name. Returns 1, or 0 when there is none.
write_even_when_full()
local text = redis.call('HGET', keys.LIMITS, ARGV[2])
if not text then return 0 end
if cjson.decode(text).source ~= 'api' then redis.call('HDEL', keys.LIMITS_DECLARED, ARGV[2]) end
set_limit(ARGV[2], redis.call('HGET', keys.LIMITS_DECLARED, ARGV[2]) or '')
return 1
