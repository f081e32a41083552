-- Sends a dead letter back with other data: the new data and the requeue are one step.
-- ARGV: now, id, data (RQ's call in JSON). Returns {state found ("" for unknown), 1 when it was done}.
-- What requeue.lua does for one task; its attempts stay, and so does how often the data was changed.
local id = ARGV[2]
local v = fields(id, 'state', 'origin', 'description')
local state = v and v[1] or ''
if not (state == 'failed' and v[2] and v[3]) then return {state, 0} end
local queue = v[2]
leave(id, 'failed', queue, '')
redis.call('HDEL', job_key(id), 'failures', 'crashes', 'losses', 'ended_at', 'begun', 'cancel', 'progress',
  'expires_at', 'due_at')
redis.call('HSET', job_key(id), 'data', ARGV[3], 'state', 'pending', 'status', 'queued', 'enqueued_at', iso(now),
  'token', '')
hold_unique_again(id, {start = true, ['end'] = true})
redis.call('HINCRBY', job_key(id), 'amended', 1)
redis.call('RPUSH', 'rq:queue:' .. queue, id)
redis.call('SADD', 'rq:queues', 'rq:queue:' .. queue)
redis.call('ZADD', 'taskqueue:pending:' .. queue, NOW, id)
ring(1)
count('requeued', 1)
return {state, 1}
