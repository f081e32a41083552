-- @include _prelude
-- Sets whether this partition is draining.
-- ARGV: now, "draining" or "active".
-- Returns whether that changed it.
if (ARGV[2] == 'draining') == is_draining() then return 0 end
write_even_when_full()
if is_draining() then redis.call('DEL', keys.DRAINING) else redis.call('SET', keys.DRAINING, '1') end
return 1
