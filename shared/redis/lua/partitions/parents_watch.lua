-- @include _prelude _webhooks _relations
-- Reads tasks for the partition in which others depend on them, which gets a notice when they end from here on.
-- ARGV: now, the number of that partition, the ids of the tasks.
-- Returns {now, then per task: its state ("gone" if it has no record), its result or error}, for as many tasks as fit into
--   some megabytes, and at least one. A result that is larger is left out: the state is "completed too-large".
write_even_when_full()
local LARGEST, room = 2097152, 4194304
local answer = {NOW}
for at = 3, #ARGV do
  local id = ARGV[at]
  local t = record(id, 'state', 'error')
  local state, found = t and t.state or 'gone', ''
  if state == 'completed' then found = result_of(id) or '' end
  if state == 'failed' then found = t.error or '' end
  if #found > LARGEST then state, found = state .. ' too-large', '' end
  room = room - #found
  if room < 0 then break end
  if t and t.state and (t.state == 'failed' or not ENDED[t.state]) then
    redis.call('HSET', keys.rq_job(id), 'relations', '1')
    redis.call('HSETNX', keys.rq_job(id), 'children', '0')
    redis.call('ZADD', keys.children(id), t.state == 'failed' and '-' .. NOW or NOW, 'partition:' .. ARGV[2])
  end
  answer[#answer + 1] = state
  answer[#answer + 1] = found
end
return answer
