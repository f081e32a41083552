-- @include _prelude _limits _limit_changes
-- Sets ("" removes) an automatic limit, unless one is set or declared.
-- ARGV: now, name, the limit (JSON, as for `limit_put.lua`).
write_even_when_full()
local before = redis.call('HGET', keys.LIMITS, ARGV[2])
if not before or cjson.decode(before).source == 'share' then set_limit(ARGV[2], ARGV[3]) end
return 0
