-- @include _prelude
-- Gives a lock back; only its holder can. ARGV: now, lock, token.
-- Returns 1, or 0 when it was not the holder's any more. Until its rest is over the lock is kept without a holder.
local key = 'taskqueue:housekeeper:lock:' .. ARGV[2]
write_even_when_full()
if outlived(ARGV[2], ARGV[3]) then return 0 end
local rests = number_of(redis.call('HGET', key, 'rests')) or 0
if rests <= now then
  redis.call('DEL', key)
  return 1
end
redis.call('HDEL', key, 'token', 'owner', 'fence', 'acquired_at', 'thread')
redis.call('HSET', key, 'until', num(rests))
redis.call('PEXPIRE', key, num(math.ceil((rests - now) / 1000) + 1))
return 1
