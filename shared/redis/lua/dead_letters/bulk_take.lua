-- @include _prelude _paging
-- Returns the next dead letters of a bulk action to the one process that carries it out.
-- ARGV: now, the action's id, the caller, how long it may be silent in microseconds, how many at most.
-- Returns {what to do next: "work", "wait" (paused, or another process is active) or "stop" (ended, or removed), ids, the
--   score of the last of them}. That score and id are the progress of the action: tasks that could be neither retried
--   nor removed stay in their index, and may still leave it in another way.
-- An action takes nothing that failed after its beginning: a task that fails again on its retry is not retried by the
-- same action for ever. Selected ones that failed after it count as done: a process that died after requeueing them
-- could not count them.
local id, who, silence, most = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local key = keys.bulk(id)
write_even_when_full()
local v = redis.call('HMGET', key, 'state', 'source', 'until', 'after', 'holder', 'held_until', 'picked', 'after_id')
if not (v[1] == 'running' or v[1] == 'paused') or not v[2] or not number_of(v[3]) then return {'stop', {}} end
if v[1] == 'paused' then return {'wait', {}} end
if v[5] and v[5] ~= who and (number_of(v[6]) or 0) > now then return {'wait', {}} end
redis.call('HSET', key, 'holder', who, 'held_until', num(now + silence))

-- Returns how many precede the first that the action has not processed.
local function dealt_with()
  if not number_of(v[4]) or not v[8] then return 0 end
  local before = redis.call('ZCARD', v[2]) - place_behind(v[2], v[4], v[8])
  local there = redis.call('ZSCORE', v[2], v[8])
  return there and tonumber(there) == tonumber(v[4]) and before + 1 or before
end

local ids = redis.call('ZRANGEBYSCORE', v[2], '-inf', v[3], 'LIMIT', dealt_with(), most)
while v[7] == '1' and #ids > 0 do
  local due = {}
  for _, each in ipairs(ids) do
    local failed_at = redis.call('ZSCORE', keys.ended('failed'), each)
    if failed_at and tonumber(failed_at) > number_of(v[3]) then
      redis.call('ZREM', v[2], each)
      redis.call('HINCRBY', key, 'gone', 1)
    else
      due[#due + 1] = each
    end
  end
  if #due > 0 then
    ids = due
    break
  end
  ids = redis.call('ZRANGEBYSCORE', v[2], '-inf', v[3], 'LIMIT', 0, most)
end
if #ids == 0 then
  redis.call('HSET', key, 'state', 'finished', 'ended_at', NOW)
  return {'stop', {}}
end
return {'work', ids, redis.call('ZSCORE', v[2], ids[#ids])}
