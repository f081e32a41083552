-- @include _prelude _webhooks _relations
-- Closes batches whose sender is silent, and removes old ones without a task on record.
-- ARGV: now, silence and age in microseconds, how many at most, lock and token of the caller. Returns how many of both.
if lock_ended(ARGV[5], ARGV[6]) then return LOCK_ENDED end
write_even_when_full()
local limit, done = tonumber(ARGV[4]), 0
local OPEN, EMPTY = 'taskqueue:batches:open', 'taskqueue:batches:empty'
for _, id in ipairs(redis.call('ZRANGEBYSCORE', OPEN, '-inf', num(now - tonumber(ARGV[2])), 'LIMIT', 0, limit)) do
  close_batch(id)
  done = done + 1
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', EMPTY, '-inf', num(now - tonumber(ARGV[3])), 'LIMIT', 0, limit)) do
  local b = redis.call('HMGET', batch_key(id), 'total', 'removed', 'closed')
  redis.call('ZREM', EMPTY, id)
  if b[3] and (number_of(b[2]) or 0) >= (number_of(b[1]) or 0) then
    redis.call('ZREM', 'taskqueue:batches', id)
    redis.call('UNLINK', batch_key(id), 'taskqueue:batch-items:' .. id, batch_wait_queue_key(id))
    done = done + 1
  end
end
return done
