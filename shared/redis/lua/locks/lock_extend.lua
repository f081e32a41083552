-- @include _prelude
-- Extends a lock. ARGV: now, lock, token, life in microseconds, microseconds without a renewal after which another
-- owner may take it (0: not before its life ends).
-- Returns 1, or 0 when the lock has ended or is another's: then the holder must stop.
local key = keys.lock(ARGV[2])
write_even_when_full()
if lock_ended(ARGV[2], ARGV[3]) then return 0 end
redis.call('HSET', key, 'until', num(now + tonumber(ARGV[4])))
local silence = tonumber(ARGV[5]) or 0
if silence > 0 then redis.call('HSET', key, 'renew_by', num(now + silence)) end
redis.call('PEXPIRE', key, num(math.ceil(tonumber(ARGV[4]) / 1000) + 1))
return 1
