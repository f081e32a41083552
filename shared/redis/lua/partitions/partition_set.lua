-- @include _prelude
-- Sets whether this partition is draining.
-- ARGV: now, "draining" or "active".
-- Returns whether that changed it.
local drain = ARGV[2] == 'draining'
if drain == is_draining then return 0 end
write_even_when_full()
redis.call('SET', keys.FORMAT, FORMAT .. (drain and ' draining' or ''))
return 1
