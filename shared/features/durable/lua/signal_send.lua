-- @include _prelude _webhooks _relations _steps
-- Stores a signal with its task, once, and runs the task if it waits for that. A signal is replaced on request, until its
-- handler has received it (its `attempt` is 0 until then), while its task is a dead letter, or by an admin.
-- ARGV: now, id, name, sender (JSON), data (JSON), how many steps and how many bytes of them a task may have, "" or who
--   replaces ("operate", "admin"), the record whose schema the data was checked against, that schema as a member of JSON.
-- Returns the state found ("" for unknown) and what happened: "stored", also for the same data sent again, or "replaced";
--   "ended" (the task); "other" (the signal is there with other data), "received" (and is not replaced any more), "late" (its
--   time-out was over); "many" or "large": no more steps fit; or "typed" and the record with the schema to check against.
write_even_when_full()
local id, field, data = ARGV[2], 'step:signal:' .. ARGV[3], ARGV[5]
local t = record(id, 'state', 'steps', 'awaits', field)
if not t or not t.state then return {'', ''} end
local there = t[field]
local tail = '"value":' .. data .. '}'
local is_there = there and string.sub(there, 1, 16) == '{"kind":"signal"'
if is_there and string.sub(there, -#tail) == tail then return {t.state, 'stored'} end
local replaces = is_there and ARGV[8] or ''
if is_there and replaces == '' then return {t.state, 'other'} end
if ENDED[t.state] and not (t.state == 'failed' and is_there) then return {t.state, 'ended'} end
if replaces == 'operate' and t.state ~= 'failed' and not string.find(there, '^{"kind":"signal","attempt":0,') then
  return {t.state, 'received'}
end
if there and there ~= ARGV[9] and string.find(there, ',"schema":"', 1, true) then return {t.state, 'typed', there} end
if there and not is_there and string.sub(there, 1, 14) ~= '{"kind":"wait"' then return {t.state, 'late'} end
local value = '{"kind":"signal","attempt":0,"started_at":' .. NOW .. ',"ended_at":' .. NOW .. ',"tries":0,"by":' .. ARGV[4] ..
  (ARGV[10] or '') .. ',' .. tail
local steps, bytes, writes = steps_of(t.steps)
steps, bytes = steps + (there and 0 or 1), bytes + #value - #(there or '')
if steps > tonumber(ARGV[6]) then return {t.state, 'many'} end
if bytes > tonumber(ARGV[7]) then return {t.state, 'large'} end
redis.call('HSET', keys.rq_job(id), field, value, 'steps', steps_as(steps, bytes, writes))
if t.state == 'scheduled' and t.awaits == 'signal ' .. ARGV[3] then run_now_one(id) end
return {t.state, is_there and 'replaced' or 'stored'}
