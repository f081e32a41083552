-- @include _prelude _webhooks _relations
-- Requeues a dead letter with new data, in one step.
-- ARGV: now, id, data (RQ's call in JSON), the span that does this ("" for none), a nonce (new for each command).
-- Returns {state found ("" for unknown), 1 when it was done, its batch if that is stopped}; the same when repeated.
-- Its attempts stay, and so does how often the data was changed.
write_even_when_full()
return requeue_one(ARGV[2], ARGV[3], ARGV[4], ARGV[5])
