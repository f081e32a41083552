-- @include _prelude _steps
-- Reads the stored steps of a running task, for the attempt that holds its lease.
-- A sleep is over in the attempt after the one that began it, also when the task was run early by request.
-- Errors of steps, and time-outs of waits, count until the task is requeued as a dead letter, which removes `step_errors`.
-- ARGV: now, id, token. Returns {now}, without more when the lease was lost, else followed by how many reads and
--   writes of its steps the task has, this one among them, and alternating names of steps and their records.
write_even_when_full()
local id, token = ARGV[2], ARGV[3]
local t = record(id, 'token', 'state', 'step_errors', 'awaits', 'steps')
if not t or t.token ~= token or t.state ~= 'running' then return {NOW} end
if t.awaits then
  local field = 'step:' .. (string.match(t.awaits, '^sleep (.*)$') or '')
  local sleep, over = string.gsub(redis.call('HGET', keys.rq_job(id), field) or '', '^{"kind":"sleep"', '{"kind":"slept"')
  if over == 1 then redis.call('HSET', keys.rq_job(id), field, sleep) end
  redis.call('HDEL', keys.rq_job(id), 'awaits')
end
local steps, bytes, writes = steps_of(t.steps)
redis.call('HSET', keys.rq_job(id), 'steps', steps_as(steps, bytes, writes + 1))
local answer, fields, again = {NOW, writes + 1}, {}, {}
for _, field in ipairs(redis.call('HKEYS', keys.rq_job(id))) do
  if string.sub(field, 1, 5) == 'step:' then fields[#fields + 1] = field end
end
for first = 1, #fields, 1000 do -- Lua's stack is bounded
  local last = math.min(first + 999, #fields)
  local values = redis.call('HMGET', keys.rq_job(id), unpack(fields, first, last))
  for at = first, last do
    local value = values[at - first + 1]
    if not t.step_errors and (string.find(value, '^{"kind":"error"') or string.find(value, '^{"kind":"timeout"')) then
      again[#again + 1] = fields[at]
    else
      answer[#answer + 1] = string.sub(fields[at], 6)
      answer[#answer + 1] = value
    end
  end
end
for first = 1, #again, 1000 do
  redis.call('HDEL', keys.rq_job(id), unpack(again, first, math.min(first + 999, #again)))
end
return answer
