-- @include _prelude
-- Appends a chunk to the output of a running task, once, if the attempt still holds the lease.
-- ARGV: now, id, token, attempt, number of the chunk in this attempt, the chunk (JSON), how many bytes of output a task may
--   have; a chunk counts 32 more than it has.
-- Returns "stored", also for the same chunk sent twice, "lost" (the lease), or "full": nothing more is stored, and an entry
--   without a chunk says so.
write_even_when_full()
local id, token, attempt, number, chunk, most = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6], tonumber(ARGV[7])
local t = record(id, 'token', 'state', 'output')
if not t or t.token ~= token or t.state ~= 'running' then return 'lost' end
local of, last, bytes = string.match(t.output or '', '^(%d+) (%d+) (%d+)$')
if of == attempt and number <= tonumber(last) then return 'stored' end
bytes = tonumber(bytes or 0)
if bytes > most then return 'full' end
bytes = bytes + #chunk + 32
if bytes > most then
  redis.call('XADD', keys.output(id), '*', 'attempt', attempt)
else
  redis.call('XADD', keys.output(id), '*', 'attempt', attempt, 'chunk', chunk)
end
redis.call('HSET', keys.rq_job(id), 'output', attempt .. ' ' .. num(number) .. ' ' .. num(bytes))
return bytes > most and 'full' or 'stored'
