-- @include _prelude
-- Pauses or resumes a queue. ARGV: now, queue, why, by whom and since when (JSON; "" to resume). Returns 1.
write_even_when_full()
if ARGV[3] ~= '' then
  redis.call('HSET', keys.PAUSED, ARGV[2], ARGV[3])
else
  redis.call('HDEL', keys.PAUSED, ARGV[2])
  notify_workers(1, ARGV[2])
  notify_workers(1, ARGV[2] .. '+')
end
return 1
