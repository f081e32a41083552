-- @include _prelude _webhooks _relations
-- Removes a batch without tasks: its request was refused as a whole. ARGV: now, id. Returns 1 when it is removed.
write_even_when_full()
local id = ARGV[2]
local b = hash(keys.batch(id), 'total', 'then')
if (number_of(b.total) or 0) > 0 or (b['then'] and redis.call('EXISTS', keys.rq_job(b['then'])) == 1) then return 0 end
redis.call('ZREM', keys.BATCHES, id)
redis.call('ZREM', keys.OPEN_BATCHES, id)
redis.call('UNLINK', keys.batch(id), keys.batch_items(id), keys.batch_wait_queue(id))
return 1
