-- @include _prelude
-- Removes completed tasks of RQ jobs from the adopted ones.
-- ARGV: now, how many of the others to return at most.
-- Returns tasks that ended otherwise, which `rq_fail` has to write to their jobs: each id, state, error (JSON or "").
write_even_when_full()
local most, ended = tonumber(ARGV[2]), {}
local completed = {}
for _, task in ipairs(redis.call('HKEYS', keys.RQ_ADOPTED)) do
  local state, error = record_values(task, 'state', 'error')
  if state == 'completed' then completed[#completed + 1] = task
  elseif (not state or ENDED[state]) and #ended < most then ended[#ended + 1] = {task, state or 'removed', error or ''} end
end
for from = 1, #completed, 500 do
  redis.call('HDEL', keys.RQ_ADOPTED, unpack(completed, from, math.min(from + 499, #completed)))
end
return ended
