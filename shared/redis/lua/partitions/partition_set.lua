-- @include _prelude
-- Sets whether this partition is draining. One that is activated notes since when, as other partitions may hold names
-- that it prefers (`demand_place`).
-- ARGV: now, "draining" or "active".
-- Returns whether that changed it.
local drain = ARGV[2] == 'draining'
if drain == is_draining then return 0 end
write_even_when_full()
redis.call('SET', keys.FORMAT, FORMAT .. (drain and ' draining' or ' since ' .. NOW))
return 1
