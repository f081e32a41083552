-- @include _prelude _webhooks _relations
-- Closes a batch: all of its tasks were sent; it is done when they have ended. ARGV: now, id. Returns 1 when it exists.
write_even_when_full()
local id = ARGV[2]
return close_batch(id)
