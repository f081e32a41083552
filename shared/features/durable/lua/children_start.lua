-- @include _prelude _webhooks _relations _limits _types _worker_queues _steps
-- @step cancel submit
-- Stores the children of a running task together with the step that starts them, once, if the attempt still holds the
-- lease. The task has them among its parents, each with the name of its group: when it waits for a group (`report.lua`),
-- it runs again at the end of the last of them. Their records are kept until the task has ended, and a cancel of the task
-- cancels them.
-- ARGV: the ten of `step_save.lua`, group, bounds, then nine per child as `submit.lua` takes them.
-- Returns what `step_save.lua` returns, or, when nothing was stored: "fan-out" and how many children and parents the task
--   has, "full" or "queues" and the queue that takes no more tasks, or that would be one too many.
local id, token, field, value, group, bounds = ARGV[2], ARGV[3], 'step:' .. ARGV[4], ARGV[5], ARGV[11], ARGV[12]
local FIRST, EACH, MOST = 13, 9, 1000
local t = record(id, 'token', 'state', 'steps', 'parents', 'refused', 'pinned', field, 'step:' .. ARGV[10])
if not t or t.token ~= token or t.state ~= 'running' then return {'lost', ''} end
if is_behind(t, ARGV[9], ARGV[10]) then return {'behind', ''} end
local there, bytes, writes = steps_of(t.steps)
if t[field] then return {'found', t[field], writes} end
bytes = bytes + #value
if there >= tonumber(ARGV[6]) then return {'many', num(there)} end
if bytes > tonumber(ARGV[7]) then return {'large', num(bytes)} end

local parents, wanted, arguments = parents_of(t.parents), {}, {NOW, bounds .. '!'}
local children = (#ARGV - FIRST + 1) / EACH
if #parents + children > MOST then return {'fan-out', num(#parents)} end
for at = FIRST, #ARGV, EACH do
  local queue = ARGV[at + 1]
  wanted[queue] = (wanted[queue] or 0) + 1
  parents[#parents + 1] = {ARGV[at], 'end', group}
  for argument = at, at + EACH - 1 do arguments[#arguments + 1] = ARGV[argument] end
end
local most = tonumber(string.match(bounds, '^%d+'))
for queue, number in pairs(wanted) do
  if not register_queue(queue, bounds) then return {'queues', queue} end
  local waiting = redis.call('ZCARD', keys.pending(queue)) + redis.call('ZCARD', keys.throttled(queue))
  if most > 0 and waiting + number > most then return {'full', queue} end
end

submit(arguments)
pin(id, t, ARGV[8])
for at = FIRST, #ARGV, EACH do add_child(id, ARGV[at], 0) end
redis.call('HSET', keys.rq_job(id), field, value, 'steps', steps_as(there + 1, bytes, writes + 1),
  'relations', '1', 'parents', cjson.encode(parents), 'spawned', '1')
return {'stored', '', writes + 1}
