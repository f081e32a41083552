-- @include _prelude _steps
-- Stores the end of a step, once, if the attempt that ran it still holds the lease of its task. The wait for a signal is
-- replaced by its time-out, unless the signal has come, and a checkpoint by the next one. Any other record is replaced if it is
-- the one that the caller names.
-- ARGV: now, id, token, name, record of the step (JSON, which begins with its kind), how many steps and how many bytes
--   of them a task may have, the version of its type to which the task is pinned ("": none), the two of `is_behind`,
--   the record that is replaced ("": none).
-- Returns what happened, a value, and how many reads and writes of its steps the task has: "stored" and, for a checkpoint
--   whose worker drains, "draining"; "found" and the record that is there already, also of the same step sent twice; without
--   that number, when nothing was stored: "lost" (the lease); "behind"; "many" and the number of steps; "large" and the
--   bytes of all.
write_even_when_full()
local id, token, field, value = ARGV[2], ARGV[3], 'step:' .. ARGV[4], ARGV[5]
local t = record(id, 'token', 'state', 'steps', 'worker_name', 'refused', 'pinned', field, 'step:' .. (ARGV[10] or ''))
if not t or t.token ~= token or t.state ~= 'running' then return {'lost', ''} end
if is_behind(t, ARGV[9], ARGV[10]) then return {'behind', ''} end
local before = t[field]
local ends_wait = before and string.sub(before, 1, 14) == '{"kind":"wait"' and string.sub(value, 1, 14) ~= '{"kind":"wait"'
local is_checkpoint = string.sub(value, 1, 20) == '{"kind":"checkpoint"'
local replaces = ends_wait or before == ARGV[11] or (before and is_checkpoint and string.sub(before, 1, 20) == '{"kind":"checkpoint"')
local there, bytes, writes = steps_of(t.steps)
if before and not replaces then return {'found', before, writes} end
there, bytes = there - (before and 1 or 0), bytes + #value - #(before or '')
if there >= tonumber(ARGV[6]) then return {'many', num(there)} end
if bytes > tonumber(ARGV[7]) then return {'large', num(bytes)} end
redis.call('HSET', keys.rq_job(id), field, value, 'steps', steps_as(there + 1, bytes, writes + 1))
pin(id, t, ARGV[8])
if string.find(value, '^{"kind":"error"') or ends_wait then redis.call('HSET', keys.rq_job(id), 'step_errors', '1') end
local beat = is_checkpoint and redis.pcall('GET', keys.worker(t.worker_name or ''))
return {'stored', type(beat) == 'string' and string.find(beat, '"state": "draining"', 1, true) and 'draining' or '',
  writes + 1}
