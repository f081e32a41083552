-- @include _prelude _webhooks _relations
-- Cancels a task: a waiting one at once, a running one by a request to its worker.
-- ARGV: now, id, reason.
-- Returns {state found, outcome}: "cancelled", "requested", "ended" (nothing to cancel) or "unknown".
write_even_when_full()
return cancel_one(ARGV[2], ARGV[3])
