-- @include _prelude
-- Ends the registration of ends for a history, and drops the waiting ones. ARGV: now, how many at most.
-- Returns how many were dropped.
write_even_when_full()
redis.call('DEL', keys.HISTORY)
local popped = redis.call('ZPOPMIN', keys.UNARCHIVED, ARGV[2])
for at = 1, #popped, 2 do redis.call('UNLINK', keys.kept_end(popped[at])) end
return #popped / 2
