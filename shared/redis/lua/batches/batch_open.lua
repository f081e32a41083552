-- @include _prelude _webhooks _relations
-- Opens a new or an existing batch: a repeated request is for the same batch.
-- ARGV: now, id, name, max_running, stop_on_error, id of the task that follows (each "" for none).
-- Returns 1 when it is new. The terms of an existing one stay unchanged.
local id = ARGV[2]
local key = keys.batch(id)
local fresh = redis.call('HSETNX', key, 'created_at', NOW)
if fresh == 1 then
  redis.call('HSET', key, 'name', ARGV[3], 'total', 0)
  for at, field in ipairs({'max_running', 'stop_on_error', 'then'}) do
    if ARGV[at + 3] ~= '' then redis.call('HSET', key, field, ARGV[at + 3]) end
  end
  redis.call('ZADD', keys.BATCHES, NOW, id)
end
redis.call('HDEL', key, 'closed', 'done_at')
redis.call('ZADD', keys.OPEN_BATCHES, NOW, id)
return fresh
