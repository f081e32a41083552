-- @include _prelude
-- Pauses, resumes or aborts a bulk action, unless its last step ended it meanwhile.
-- ARGV: now, the action's id, its new state: "paused", "running" or "aborted", why ("" when a
--   person decided). Returns 1 when it was still open.
local key, state = keys.bulk(ARGV[2]), ARGV[3]
write_even_when_full()
local before = redis.call('HGET', key, 'state')
if before ~= 'running' and before ~= 'paused' then return 0 end
redis.call('HSET', key, 'state', state, 'why', ARGV[4])
if state == 'aborted' then
  redis.call('HSET', key, 'ended_at', NOW)
  redis.call('SREM', keys.OPEN_BULKS, ARGV[2])
end
return 1
