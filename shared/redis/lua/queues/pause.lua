-- @include _prelude _limits _limit_changes
-- Pauses or resumes a queue or a task type: claims take no more of its tasks.
-- ARGV: now, queue or "type:NAME", why, by whom, since when and until when (JSON; "" to resume), the pause that is to end
--   (JSON; "" for any). Returns 1, or 0 where another pause has replaced that one.
write_even_when_full()
local name, about, expected = ARGV[2], ARGV[3], ARGV[4] or ''
if expected ~= '' and redis.call('HGET', keys.PAUSED, name) ~= expected then return 0 end
if about ~= '' then
  redis.call('HSET', keys.PAUSED, name, about)
  return 1
end
redis.call('HDEL', keys.PAUSED, name)
if string.find(name, ':', 1, true) then recheck_limit(name)
else
  notify_workers(1, name)
  notify_workers(1, name .. '+')
end
return 1
