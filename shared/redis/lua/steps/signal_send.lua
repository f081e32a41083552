-- @include _prelude _webhooks _relations _steps
-- Stores a signal with its task, once, and runs the task if it waits for that.
-- ARGV: now, id, name, sender (JSON), data (JSON), how many steps and how many bytes of them a task may have.
-- Returns the state found ("" for unknown) and what happened: "stored", also for the same data sent again; "ended" (the
--   task); "other" (the signal is there with other data), "late" (its time-out was over); "many" or "large": no more steps
--   fit.
write_even_when_full()
local id, field, data = ARGV[2], 'step:signal:' .. ARGV[3], ARGV[5]
local t = record(id, 'state', 'steps', 'awaits', field)
if not t or not t.state then return {'', ''} end
local there = t[field]
local tail = '"value":' .. data .. '}'
if there and string.sub(there, 1, 16) == '{"kind":"signal"' then
  return {t.state, string.sub(there, -#tail) == tail and 'stored' or 'other'}
end
if ENDED[t.state] then return {t.state, 'ended'} end
if there and string.sub(there, 1, 14) ~= '{"kind":"wait"' then return {t.state, 'late'} end
local value = '{"kind":"signal","attempt":0,"started_at":' .. NOW .. ',"ended_at":' .. NOW .. ',"tries":0,"by":' .. ARGV[4] ..
  ',' .. tail
local steps, bytes, writes = steps_of(t.steps)
steps, bytes = steps + (there and 0 or 1), bytes + #value - #(there or '')
if steps > tonumber(ARGV[6]) then return {t.state, 'many'} end
if bytes > tonumber(ARGV[7]) then return {t.state, 'large'} end
redis.call('HSET', keys.rq_job(id), field, value, 'steps', steps_as(steps, bytes, writes))
if t.state == 'scheduled' and t.awaits == 'signal ' .. ARGV[3] then run_now_one(id) end
return {t.state, 'stored'}
