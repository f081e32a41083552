-- @include _prelude _limits _limit_changes
-- Sets a limit at run time; it overrides declarations in handlers and settings until it is deleted.
-- ARGV: now, name (type:NAME or key:NAME), the limit (JSON: concurrency, count, per, burst, source, at).
-- Returns 1 when no such limit was set before.
write_even_when_full()
local before = redis.call('HGET', keys.LIMITS, ARGV[2])
set_limit(ARGV[2], ARGV[3])
return (before and cjson.decode(before).source == 'api') and 0 or 1
