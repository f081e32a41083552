-- @include _prelude _schedules
-- Removes a schedule, also one that is only listed; its tasks stay. ARGV: now, name, source it must have ("" for
-- any).
-- Returns 1, or 0 when there is no such schedule.
write_even_when_full()
local name = ARGV[2]
local source = redis.call('HGET', schedule_key(name), 'source')
if ARGV[3] ~= '' and ARGV[3] ~= source then return 0 end
if not source and not redis.call('ZSCORE', SCHEDULES, name) then return 0 end
unlist(name)
redis.call('ZREM', SCHEDULES, name)
redis.call('DEL', schedule_key(name), job_key(entry_of(name)))
return 1
