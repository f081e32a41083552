-- @include _prelude
-- Stores the answer of a request of several steps, or frees its key ("" for an answer: it was refused as a whole).
-- ARGV: now, digest of the key, the caller, answer. Returns 1, or 0 when another process has taken the request over.
write_even_when_full()
local key = keys.idempotency(ARGV[2])
if redis.call('HGET', key, 'who') ~= ARGV[3] then return 0 end
if ARGV[4] == '' then redis.call('DEL', key)
else
  redis.call('HSET', key, 'answer', ARGV[4])
  redis.call('HDEL', key, 'selected')
end
return 1
