-- @include _prelude _schedules
-- Records outcomes of the last runs of schedules, and failures in a row. ARGV: now, lock and token of the caller, how
-- many schedules at most. Returns how many were looked at.
-- A dead letter may be retried, so its run is looked at for as long as its task exists.
local AGAIN, LATER = 5000000, 60000000
write_even_when_full()
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
local names = redis.call('ZRANGEBYSCORE', keys.SCHEDULES_FOLLOWED, '-inf', NOW, 'LIMIT', 0, tonumber(ARGV[4]))
for _, name in ipairs(names) do
  local key = keys.schedule_runs(name)
  local runs, later, failed, counting = runs_of(key), nil, 0, true
  for at = #runs, 1, -1 do
    local run = runs[at]
    local t = record(run.id, 'state')
    local state = t and t.state or ENDED[run.state] and run.state or 'removed'
    if state ~= run.state then redis.call('HSET', key, run.id, run.due .. ' ' .. state) end
    if t and not ENDED[state] and state ~= 'removed' then
      later = AGAIN
    elseif t and state == 'failed' then
      later = later or LATER
    end
    if state == 'completed' then counting = false end
    if state == 'failed' and counting then failed = failed + 1 end
  end
  if failed > 0 then
    redis.call('ZADD', keys.SCHEDULES_FAILING, failed, name)
  else
    redis.call('ZREM', keys.SCHEDULES_FAILING, name)
  end
  if later then
    redis.call('ZADD', keys.SCHEDULES_FOLLOWED, num(now + later), name)
  else
    redis.call('ZREM', keys.SCHEDULES_FOLLOWED, name)
  end
end
return #names
