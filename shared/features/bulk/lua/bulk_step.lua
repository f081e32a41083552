-- @include _prelude _paging _filter _bulk _webhooks _relations _undo
-- Runs the next part of a bulk action, and records its progress in the same step: a process that dies before or after
-- it leaves nothing half done, and another one continues from there.
-- ARGV: now, the action's id, how many tasks at most, how many to examine, lock and token of the caller, the span that
--   retries ("" for none), "1" to name the tasks without acting, how long deleted tasks
--   can be restored (milliseconds), then for a retry that changes data alternating ids and RQ's calls with the new data,
--   "" for a task that cannot have it.
-- Returns {next action: "work", "wait" (paused) or "stop" (ended, or removed), how many were handled, or their ids}.
-- An action takes no task that is younger than it. A task that fails again on its retry is not retried by the same
-- action again.
if lock_ended(ARGV[5], ARGV[6]) then return LOCK_ENDED end
local id, most, cause, looking = ARGV[2], tonumber(ARGV[3]), ARGV[7], ARGV[8] == '1'
local key = keys.bulk(id)
write_even_when_full()
local v = hash(key, 'state', 'verb', 'patch', 'wanted', 'to', 'most_pending', 'reason', 'at', 'after', 'after_id', 'done', 'passed')
local wanted = read_wanted(v.wanted)
if not (v.state == 'running' or v.state == 'paused') or not wanted then return {'stop', looking and {} or 0} end
if v.state == 'paused' then return {'wait', looking and {} or 0} end

local function cancel(task)
  local found = cancel_one(task, v.reason or 'cancelled by a bulk action')
  local done = found[2] == 'requested' or (found[2] == 'cancelled' and found[1] ~= 'cancelled')
  if done then redis.call('HSET', keys.rq_job(task), 'bulk', id) end
  return done
end

local amended = {}
for at = 10, #ARGV, 2 do amended[ARGV[at]] = ARGV[at + 1] end

-- Requeued tasks are followed to their end (see `bulk_follow.lua`).
local function retry(task)
  local data = amended[task]
  if data == '' then redis.call('HINCRBY', key, 'unfit', 1) end
  if v.patch and (data or '') == '' then return false end
  local failed_at = redis.call('ZSCORE', keys.ended('failed'), task)
  if not failed_at or tonumber(failed_at) > wanted.begun_at then return false end
  local group = redis.call('HGET', keys.FAILURE_GROUP_OF, task) or ''
  if requeue_one(task, data, cause)[2] ~= 1 then return false end
  redis.call('HSET', keys.bulk_followed(id), task, group)
  redis.call('SADD', keys.FOLLOWED_BULKS, id)
  return true
end

local ACT = {
  cancel = cancel,
  run_now = function(task) return run_now_one(task)[2] == 1 end,
  move = function(task) return move_one(task, v.to, number_of(v.most_pending) or 0)[2] == 1 end,
  retry = retry,
  delete = function(task, t)
    return delete_one(task, ENDED[t.state] and t.state or 'failed', tonumber(ARGV[9]), id)[2] == 1
  end,
  restore = function(task) return restore_one(task)[2] == 1 end,
}
if not ACT[v.verb] then return {'stop', looking and {} or 0} end

local place = {at = tonumber(v.at) or 1, score = tonumber(v.after) and v.after or '', id = v.after_id or ''}
local tasks, done, last = {}, 0, true
local left = (wanted.limit or math.huge) - (number_of(v.done) or 0) - (number_of(v.passed) or 0)
most = math.min(most, left)
if most > 0 then
  last = select(2, examine(place, wanted, tonumber(ARGV[4]), function(task, t)
    tasks[#tasks + 1] = task
    if not looking and ACT[v.verb](task, t) then done = done + 1 end
    return #tasks < most
  end))
end
last = last or #tasks >= left
if looking then return {'work', tasks} end
redis.call('HINCRBY', key, 'done', done)
redis.call('HINCRBY', key, 'passed', #tasks - done)
redis.call('HSET', key, 'at', place.at, 'after', place.score, 'after_id', place.id)
if last then
  redis.call('HSET', key, 'state', 'finished', 'ended_at', NOW)
  redis.call('SREM', keys.OPEN_BULKS, id)
end
return {last and 'stop' or 'work', #tasks}
