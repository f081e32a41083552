-- @include _prelude _webhooks _relations
-- Enqueues a scheduled or retrying task at once, whatever its due time.
-- ARGV: now, id. Returns {state found ("" for unknown), 1 when it was moved}.
write_even_when_full()
return run_now_one(ARGV[2])
