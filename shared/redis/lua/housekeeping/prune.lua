-- @include _prelude _webhooks _relations
-- Removes ended tasks of one final state, the oldest first: past their retention, or over the limit.
-- ARGV: now, state, age in microseconds ("" for any age), how many of them to keep ("" for any number), how many to
--   remove at most, lock and token of the caller.
-- Returns how many were removed, and how many were examined. Some are postponed: the result of a completed task is kept
-- as long as a task that depends on it has not ended, and then for its retention again. A task whose record has another
-- state only leaves the index: no waiting or running task is ever removed.
local state, most = ARGV[2], tonumber(ARGV[5])
if lock_ended(ARGV[6], ARGV[7]) then return LOCK_ENDED end
write_even_when_full()
local index, removed, looked = keys.ended(state), 0, 0
if ARGV[4] ~= '' then most = math.min(most, redis.call('ZCARD', index) - tonumber(ARGV[4])) end
if most <= 0 then return {0, 0} end
local latest = ARGV[3] == '' and '+inf' or num(now - tonumber(ARGV[3]))
for _, id in ipairs(redis.call('ZRANGEBYSCORE', index, '-inf', latest, 'LIMIT', 0, most)) do
  local t = record(id, 'origin', 'state')
  if t and t.state and t.state ~= state then
    redis.call('ZREM', index, id)
    if state == 'failed' then leave_failure_group(id) end
  elseif state == 'completed' and needed(id) then
    redis.call('ZADD', index, NOW, id)
  else
    before_removal(id)
    remove(id, state, t and t.origin or '', '')
    removed = removed + 1
  end
  looked = looked + 1
end
return {removed, looked}
