-- @include _prelude _schedules
-- Pauses or resumes a schedule. ARGV: now, name, revision, reason (JSON; "" to resume), next time when resumed.
-- Returns 1, or 0 when the schedule is gone or was changed meanwhile.
write_even_when_full()
local name, reason = ARGV[2], ARGV[4]
local key = keys.schedule(name)
local v = hash(key, 'revision', 'paused')
if v.revision ~= ARGV[3] then return 0 end
if reason ~= '' then
  redis.call('HSET', key, 'paused', reason)
  redis.call('ZREM', keys.SCHEDULES_DUE, name)
elseif v.paused then
  redis.call('HDEL', key, 'paused')
  set_due(name, ARGV[5])
end
return 1
