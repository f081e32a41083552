-- @include _prelude
-- Counts how some requeued tasks of a bulk action have ended.
-- ARGV: now, the action's id, the cursor ("0" at the beginning), about how many.
-- Returns the next cursor ("0": this was the last part).
-- An entry leaves the hash in the step that counts it, so several processes may do this at the same time.
local id, cursor, most = ARGV[2], ARGV[3], ARGV[4]
local key, followed = keys.bulk(id), keys.bulk_followed(id)
write_even_when_full()
if redis.call('EXISTS', key) == 0 then
  redis.call('DEL', followed)
  redis.call('SREM', keys.FOLLOWED_BULKS, id)
  return '0'
end

-- Returns how a task ended, or nil.
local function outcome(task, cause)
  local t = record(task, 'state')
  local state = t and t.state
  if not state then return 'removed' end
  if state ~= 'failed' then return ENDED[state] and state end
  return redis.call('HGET', keys.FAILURE_GROUP_OF, task) == cause and 'failed_same' or 'failed_other'
end

local page = redis.call('HSCAN', followed, cursor, 'COUNT', most)
for at = 1, #page[2], 2 do
  local task = page[2][at]
  local result = outcome(task, page[2][at + 1])
  if result then
    redis.call('HDEL', followed, task)
    redis.call('HINCRBY', key, 'ended:' .. result, 1)
  end
end
if redis.call('EXISTS', followed) == 0 then redis.call('SREM', keys.FOLLOWED_BULKS, id) end
return page[1]
