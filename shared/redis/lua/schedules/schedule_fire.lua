-- @include _prelude _schedules _webhooks _relations _limits _types _worker_queues
-- @step cancel submit
-- Turns one due time of a schedule into one task, and advances the schedule, in one step.
-- ARGV: now, lock and token of the caller, name, revision, due time, next time ("" for none), how many due times are
--   skipped without a task, the overlap policy when the schedule's last task has not ended ("allow", "skip", "cancel"),
--   then nothing more (no task for this due time), or the arguments of `submit.lua` for one task.
-- Returns "fired", "missed" (no task wanted), "overlap" (skipped because of the last one), "full" (its queue is full) or
--   "many" (its queue would be one too many; for both, nothing was changed), or "changed": it was fired, changed, paused
--   or removed meanwhile.
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
local name, due, passed, overlap = ARGV[4], ARGV[6], tonumber(ARGV[8]), ARGV[9]
local key = keys.schedule(name)
local v = hash(key, 'revision', 'due', 'paused', 'last_task')
if v.revision ~= ARGV[5] or v.due ~= due or v.paused then return 'changed' end

local function unended(id)
  local t = id and record(id, 'state')
  return t and t.state and not ENDED[t.state]
end

local outcome = 'missed'
if #ARGV > 9 then
  local last, id = v.last_task, ARGV[11]
  local busy = unended(last) and last ~= id
  if busy and overlap == 'skip' then
    outcome = 'overlap'
    redis.call('HINCRBY', key, 'overlaps', 1)
  else
    local said = submit({ARGV[1], ARGV[10] .. '!', unpack(ARGV, 11)})[1]
    local refusal = type(said) == 'table' and said[1]
    if refusal == 'full' or refusal == 'many' then return refusal end
    if busy and overlap == 'cancel' then cancel({ARGV[1], last, 'the next run of schedule ' .. name .. ' began'}) end
    outcome = 'fired'
    redis.call('HSET', key, 'last_task', id, 'last_due', due)
    redis.call('HINCRBY', key, 'fired', 1)
    add_run(name, id, due)
  end
end
if passed > 0 then
  redis.call('HINCRBY', key, 'missed', passed)
  redis.call('ZADD', keys.SCHEDULES_MISSED, NOW, name)
end
set_due(name, ARGV[7])
return outcome
