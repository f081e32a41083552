-- @include _prelude _webhooks _relations
-- Removes a batch without tasks: its request was refused as a whole. ARGV: now, id. Returns 1 when it is removed.
write_even_when_full()
local id = ARGV[2]
local b = redis.call('HMGET', batch_key(id), 'total', 'then')
if (number_of(b[1]) or 0) > 0 or (b[2] and redis.call('EXISTS', job_key(b[2])) == 1) then return 0 end
redis.call('ZREM', 'taskqueue:batches', id)
redis.call('ZREM', 'taskqueue:batches:open', id)
redis.call('UNLINK', batch_key(id), 'taskqueue:batch-items:' .. id, batch_wait_queue_key(id))
return 1
