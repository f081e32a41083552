-- @include _prelude _steps
-- Appends a chunk to the output of a running task, once, if the attempt still holds the lease.
-- ARGV: now, id, token, attempt, number of the chunk in this attempt, the chunk (JSON), how many bytes of output a task may
--   have, the two of `is_behind`; a chunk counts 32 more than it has.
-- Returns what happened, and the number that `step_save.lua` returns: "stored", also for the same chunk sent twice, or "full":
--   nothing more is stored, and an entry without a chunk says so; or "lost" (the lease) or "behind" alone.
write_even_when_full()
local id, token, attempt, number, chunk, most = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local t = record(id, 'token', 'state', 'output', 'steps', 'step:' .. (ARGV[9] or ''))
if not t or t.token ~= token or t.state ~= 'running' then return {'lost'} end
if is_behind(t, ARGV[8], ARGV[9]) then return {'behind'} end
local there, size, writes = steps_of(t.steps)
local of, last, bytes = string.match(t.output or '', '^(%d+) (%d+) (%d+)$')
if of == attempt and number <= tonumber(last) then return {'stored', writes} end
bytes = tonumber(bytes or 0)
if bytes > most then return {'full', writes} end
bytes = bytes + #chunk + 32
if bytes > most then
  redis.call('XADD', keys.output(id), '*', 'attempt', attempt)
else
  redis.call('XADD', keys.output(id), '*', 'attempt', attempt, 'chunk', chunk)
end
redis.call('HSET', keys.rq_job(id), 'output', attempt .. ' ' .. num(number) .. ' ' .. num(bytes),
  'steps', steps_as(there, size, writes + 1))
return {bytes > most and 'full' or 'stored', writes + 1}
