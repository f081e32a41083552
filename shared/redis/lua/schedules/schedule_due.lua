-- @include _prelude _schedules
-- Returns the due schedules, the longest overdue first. ARGV: now, how many at most.
-- Returns {now, one list per schedule: name, revision, spec, time it is due}.
-- The list of due times is rebuilt from the schedules when it was deleted.
write_even_when_full()
if redis.call('EXISTS', keys.SCHEDULES_DUE) == 0 then
  for _, name in ipairs(redis.call('ZRANGE', keys.SCHEDULES, 0, -1)) do
    local v = hash(keys.schedule(name), 'due', 'paused')
    if number_of(v.due) and not v.paused then set_due(name, v.due) end
  end
end
local answer = {NOW}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', keys.SCHEDULES_DUE, '-inf', NOW, 'LIMIT', 0, tonumber(ARGV[2]))) do
  local v = hash(keys.schedule(name), 'revision', 'spec', 'due')
  if v.revision and v.spec and number_of(v.due) then answer[#answer + 1] = {name, v.revision, v.spec, v.due} else redis.call('ZREM', keys.SCHEDULES_DUE, name) end
end
return answer
