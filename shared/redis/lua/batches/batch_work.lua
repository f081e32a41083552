-- @include _prelude _webhooks _relations
-- Begins to cancel all tasks of a batch, or to retry its dead letters; `run_deferred_work` continues it step by step.
-- ARGV: now, id, "cancel" or "retry", reason. Returns "begun", "busy" (the last one is in progress) or "unknown".
-- From the moment a cancel has begun none of its tasks starts; a retry ends an earlier cancel or stop.
local id, work = ARGV[2], ARGV[3]
local key = keys.batch(id)
write_even_when_full()
local b = hash(key, 'total', 'work', 'work_at')
if not b.total then return 'unknown' end
if b.work == 'retry' or b.work == 'cancel' then return 'busy' end
if work == 'cancel' then
  stop_batch(id, ARGV[4], 'cancel')
else
  redis.call('HDEL', key, 'stopped', 'stopped_at')
  redis.call('HSET', key, 'work', 'retry', 'work_at', '-1')
  defer('batch:' .. id)
end
return 'begun'
