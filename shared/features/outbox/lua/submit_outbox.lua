-- @include _prelude _webhooks _relations _limits _types _worker_queues
-- @step cancel submit
-- Stores tasks of an outbox, each at most once, also when its record has been removed since: each leaves a receipt. A
-- receipt stays until its row cannot be sent again, however long the relay was off.
-- ARGV: now, the bounds of queues (see `register_queue`), how long a receipt is kept and how long a settled one, in
--   milliseconds, the number of ids whose rows are settled, these ids, then for each task what submit.lua takes. Without
--   ids and tasks it is a sign of life of a relay.
-- Returns per task what submit.lua does; for one with a receipt {"known", its state ("" when its record is removed)}.
local keep, keep_settled, settled = ARGV[3], ARGV[4], tonumber(ARGV[5])
local answer, fresh, arguments = {}, {}, {ARGV[1], ARGV[2]}

if #ARGV == 5 then redis.call('ZADD', keys.PRESENCE, NOW, 'relay') end

for at = 6, 5 + settled do redis.call('PEXPIRE', keys.receipt(ARGV[at]), keep_settled) end

for at = 6 + settled, #ARGV, 9 do
  local stored = redis.call('GET', keys.receipt(ARGV[at]))
  if stored then
    local state = state_of(stored)
    answer[#answer + 1] = {'known', state == 'gone' and '' or state}
  else
    answer[#answer + 1] = ''
    fresh[#fresh + 1] = #answer
    for each = at, at + 8 do arguments[#arguments + 1] = ARGV[each] end
  end
end

-- Returns the id of the task that now does the work of a row; nil for a refused row, which may be sent again.
local function accepted(id, said)
  if type(said) == 'table' then return said[1] == 'existing' and said[2] end
  return RQ_STATUS[said] and id
end

for at, said in ipairs(#fresh > 0 and submit(arguments) or {}) do
  answer[fresh[at]] = said
  local id = arguments[9 * at - 6]
  local stored = accepted(id, said)
  if stored then redis.call('SET', keys.receipt(id), stored, 'PX', keep) end
end
return answer
