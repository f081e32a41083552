-- @include _prelude
-- Checks some requeued tasks of a bulk action: counts those that have ended, and returns what the rest waits for.
-- ARGV: now, the action's id, the cursor ("0" at the beginning), about how many.
-- Returns {the next cursor ("0": this was the last part), how many have ended, then alternating a reason and how many
--   wait for it: a state, "paused QUEUE", "paused type:NAME", "limit NAME", "worker TYPE" or "turn QUEUE"}.
-- An entry leaves the hash in the step that counts it, so several processes may do this at the same time.
local id, cursor, most = ARGV[2], ARGV[3], ARGV[4]
local key, followed = keys.bulk(id), keys.bulk_followed(id)
write_even_when_full()
if redis.call('EXISTS', key) == 0 then
  redis.call('DEL', followed)
  redis.call('SREM', keys.FOLLOWED_BULKS, id)
  return {'0', 0}
end

local function failed_again(task, cause)
  return redis.call('HGET', keys.FAILURE_GROUP_OF, task) == cause and 'failed_same' or 'failed_other'
end

-- Returns how a task ended, or nil and what it waits for.
local function outcome(task, cause)
  local t = record(task, 'state', 'origin', 'wait_queue')
  local state = t and t.state
  if not state then return 'removed' end
  if state == 'failed' then return failed_again(task, cause) end
  if ENDED[state] then return state end
  if state ~= 'pending' then return nil, state end
  if redis.call('HEXISTS', keys.PAUSED, t.origin or '') == 1 then return nil, 'paused ' .. t.origin end
  local limit = string.match(t.wait_queue or '', '^[^|]*|([^|]*)|[^|]*$')
  local lacking = string.match(limit or '', '^worker:([^#]*)#')
  if lacking then return nil, 'worker ' .. lacking end
  if limit and redis.call('HEXISTS', keys.PAUSED, limit) == 1 then return nil, 'paused ' .. limit end
  if limit then return nil, limit == '' and 'turn ' .. (t.origin or '') or 'limit ' .. limit end
  return nil, 'pending'
end

-- Counts an end, also for the cause that was retried where that is counted.
local function count_end(cause, result)
  redis.call('HINCRBY', key, 'ended:' .. result, 1)
  if redis.call('HEXISTS', key, 'of:' .. cause .. ':retried') == 1 then
    redis.call('HINCRBY', key, 'of:' .. cause .. ':' .. result, 1)
  end
end

local page = redis.call('HSCAN', followed, cursor, 'COUNT', most)
local waiting, ended = {}, 0
for at = 1, #page[2], 2 do
  local task = page[2][at]
  local result, reason = outcome(task, page[2][at + 1])
  if result then
    redis.call('HDEL', followed, task)
    count_end(page[2][at + 1], result)
    ended = ended + 1
  else
    waiting[reason] = (waiting[reason] or 0) + 1
  end
end
if redis.call('EXISTS', followed) == 0 then redis.call('SREM', keys.FOLLOWED_BULKS, id) end
local answer = {page[1], ended}
for reason, count_ in pairs(waiting) do
  answer[#answer + 1] = reason
  answer[#answer + 1] = count_
end
return answer
