-- @include _prelude
-- Releases a lock; only its holder can. ARGV: now, lock, token.
-- Returns 1, or 0 when it was no longer held. In its cooldown the lock stays without a holder.
local key = keys.lock(ARGV[2])
write_even_when_full()
if lock_ended(ARGV[2], ARGV[3]) then return 0 end
local cooldown = number_of(redis.call('HGET', key, 'cooldown_until')) or 0
if cooldown <= now then
  redis.call('DEL', key)
  return 1
end
redis.call('HDEL', key, 'token', 'owner', 'fence', 'acquired_at', 'thread')
redis.call('HSET', key, 'until', num(cooldown))
redis.call('PEXPIRE', key, num(math.ceil((cooldown - now) / 1000) + 1))
return 1
