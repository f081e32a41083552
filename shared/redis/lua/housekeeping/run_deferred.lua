-- @include _prelude _webhooks _relations
-- Goes on with what ended tasks and stopped batches owe to others: children to be told, tasks to be cancelled or retried.
-- ARGV: now, how many tasks at most, lock and token of the caller. Returns how many it dealt with.
if outlived(ARGV[3], ARGV[4]) then return OUTLIVED end
write_even_when_full()
return pay(tonumber(ARGV[2]))
