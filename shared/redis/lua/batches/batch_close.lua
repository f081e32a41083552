-- @include _prelude _webhooks _relations
-- All tasks of a batch have been sent: when they have ended, it is done. ARGV: now, id. Returns 1 when there is one.
write_even_when_full()
local id = ARGV[2]
return close_batch(id)
