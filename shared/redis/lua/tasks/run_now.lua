-- @include _prelude _webhooks _relations
-- Enqueues a scheduled or retrying task at once, whatever its due time.
-- ARGV: now, id. Returns {state found ("" for unknown), 1 when it was moved}.
write_even_when_full()
local id = ARGV[2]
local t = record(id, 'state', 'origin')
local state = t and t.state or ''
if not (state == 'scheduled' or state == 'retrying') then return {state, 0} end
local queue = t.origin
leave(id, state, queue, '')
if held_back(id, state, queue, NOW) then return {state, 1} end
redis.call('HSET', keys.rq_job(id), 'state', 'pending', 'status', 'queued', 'enqueued_at', iso(now))
redis.call('RPUSH', keys.rq_queue(queue), id)
redis.call('SADD', keys.RQ_QUEUES, keys.rq_queue(queue))
redis.call('ZADD', keys.pending(queue), NOW, id)
notify_workers(1, queue)
moved(id, state, 'pending')
return {state, 1}
