-- @include _prelude _webhooks _relations
-- Runs deferred work of ended tasks and stopped batches: children to notify, tasks to cancel or retry.
-- ARGV: now, how many tasks at most, lock and token of the caller. Returns how many it processed.
if lock_ended(ARGV[3], ARGV[4]) then return LOCK_ENDED end
write_even_when_full()
return run_deferred_work(tonumber(ARGV[2]))
