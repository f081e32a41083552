-- @include _prelude _webhooks _relations
-- Closes batches whose sender is silent, and removes old ones without a task on record.
-- ARGV: now, silence and age in microseconds, how many at most, lock and token of the caller. Returns how many of both.
if lock_ended(ARGV[5], ARGV[6]) then return LOCK_ENDED end
write_even_when_full()
local limit, done = tonumber(ARGV[4]), 0
for _, id in ipairs(redis.call('ZRANGEBYSCORE', keys.OPEN_BATCHES, '-inf', num(now - tonumber(ARGV[2])), 'LIMIT', 0, limit)) do
  close_batch(id)
  done = done + 1
end
for _, id in ipairs(redis.call('ZRANGEBYSCORE', keys.EMPTY_BATCHES, '-inf', num(now - tonumber(ARGV[3])), 'LIMIT', 0, limit)) do
  local b = hash(keys.batch(id), 'total', 'removed', 'closed')
  redis.call('ZREM', keys.EMPTY_BATCHES, id)
  if b.closed and (number_of(b.removed) or 0) >= (number_of(b.total) or 0) then
    redis.call('ZREM', keys.BATCHES, id)
    redis.call('UNLINK', keys.batch(id), keys.batch_items(id), keys.batch_wait_queue(id))
    done = done + 1
  end
end
return done
