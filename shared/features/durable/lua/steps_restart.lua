-- @include _prelude _webhooks _relations _steps
-- Gives a running task new data and removes its steps, if the attempt still holds the lease, so that the next one begins
-- anew, on any version. Signals that no attempt has read stay; children that the task has started are no longer its own.
-- ARGV: now, id, token, data (RQ's call in JSON), how many reads and writes the attempt knows, then the names of the signals that were read.
-- Returns "stored" and the number that `step_save.lua` returns, the same when repeated before the attempt has ended; or
--   "lost" (the lease) or "behind" alone.
write_even_when_full()
local id, token = ARGV[2], ARGV[3]
local t = record(id, 'token', 'state', 'parents', 'steps')
if not t or t.token ~= token or t.state ~= 'running' then return {'lost'} end
local _, _, writes = steps_of(t.steps)
if is_behind(t, ARGV[5]) then return {'behind'} end
local was_read, gone, signals, bytes = {}, {'step_errors', 'spawned', 'awaits', 'pinned'}, 0, 0
for at = 6, #ARGV do was_read['step:signal:' .. ARGV[at]] = true end
for _, field in ipairs(redis.call('HKEYS', keys.rq_job(id))) do
  local is_signal = string.sub(field, 1, 12) == 'step:signal:' and not was_read[field]
  local value = is_signal and redis.call('HGET', keys.rq_job(id), field) or ''
  if string.find(value, '^{"kind":"signal"') then
    signals, bytes = signals + 1, bytes + #value
  elseif string.sub(field, 1, 5) == 'step:' then
    gone[#gone + 1] = field
  end
end
for first = 1, #gone, 1000 do -- Lua's stack is bounded
  redis.call('HDEL', keys.rq_job(id), unpack(gone, first, math.min(first + 999, #gone)))
end
redis.call('HSET', keys.rq_job(id), 'data', ARGV[4], 'steps', steps_as(signals, bytes, writes + 1))
local own = {}
for _, parent in ipairs(parents_of(t.parents)) do
  if parent[3] then redis.call('ZREM', keys.children(parent[1]), id) else own[#own + 1] = parent end
end
if t.parents then
  if #own > 0 then redis.call('HSET', keys.rq_job(id), 'parents', cjson.encode(own))
  else redis.call('HDEL', keys.rq_job(id), 'parents') end
end
return {'stored', writes + 1}
