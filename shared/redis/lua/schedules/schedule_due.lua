-- @include _prelude _schedules
-- Returns the due schedules, the longest overdue first. ARGV: now, how many at most.
-- Returns {now, one list per schedule: name, revision, spec, time it is due}.
-- The list of due times is rebuilt from the schedules when it was deleted.
write_even_when_full()
if redis.call('EXISTS', keys.SCHEDULES_DUE) == 0 then
  for _, name in ipairs(redis.call('ZRANGE', keys.SCHEDULES, 0, -1)) do
    local v = redis.call('HMGET', keys.schedule(name), 'due', 'paused')
    if number_of(v[1]) and not v[2] then set_due(name, v[1]) end
  end
end
local answer = {NOW}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', keys.SCHEDULES_DUE, '-inf', NOW, 'LIMIT', 0, tonumber(ARGV[2]))) do
  local v = redis.call('HMGET', keys.schedule(name), 'revision', 'spec', 'due')
  if v[1] and v[2] and number_of(v[3]) then answer[#answer + 1] = {name, v[1], v[2], v[3]} else unlist(name) end
end
return answer
