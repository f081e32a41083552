-- @include _prelude _schedules
-- Removes a schedule, even if it is only listed; its tasks stay. ARGV: now, name, source it must have ("" for
-- any).
-- Returns 1, or 0 when there is no such schedule.
write_even_when_full()
local name = ARGV[2]
local source = redis.call('HGET', keys.schedule(name), 'source')
if ARGV[3] ~= '' and ARGV[3] ~= source then return 0 end
if not source and not redis.call('ZSCORE', keys.SCHEDULES, name) then return 0 end
redis.call('ZREM', keys.SCHEDULES_DUE, name)
redis.call('ZREM', keys.SCHEDULES, name)
for _, index in ipairs({keys.SCHEDULES_MISSED, keys.SCHEDULES_FOLLOWED, keys.SCHEDULES_FAILING}) do
  redis.call('ZREM', index, name)
end
redis.call('DEL', keys.schedule(name), keys.schedule_runs(name))
return 1
