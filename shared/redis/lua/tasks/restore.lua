-- @include _prelude _webhooks _relations _undo
-- Restores a task that was cancelled or deleted, or is to be cancelled. ARGV: now, id.
-- Returns {state found ("" for unknown), 1 when it was restored, its batch if that is stopped}.
write_even_when_full()
return restore_one(ARGV[2])
