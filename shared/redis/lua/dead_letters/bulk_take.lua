-- @include _prelude _paging
-- Returns the next dead letters of a bulk action to the one process that carries it out.
-- ARGV: now, the action's id, the caller, how long it may be silent in microseconds, how many at most.
-- Returns {what to do next: "work", "wait" (paused, or another process is active) or "stop" (ended, or removed), ids, the
--   score of the last of them}. That score and id are the progress of the action: tasks that could be neither retried
--   nor removed stay in their index, and may still leave it in another way.
-- An action takes nothing that failed after its beginning: a task that fails again on its retry is not retried by the
-- same action again and again. Selected ones that failed after it count as done: a process that died after requeueing them
-- could not count them.
local id, who, silence, most = ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local key = keys.bulk(id)
write_even_when_full()
local v = hash(key, 'state', 'source', 'until', 'after', 'holder', 'held_until', 'picked', 'after_id')
if not (v.state == 'running' or v.state == 'paused') or not v.source or not number_of(v['until']) then return {'stop', {}} end
if v.state == 'paused' then return {'wait', {}} end
if v.holder and v.holder ~= who and (number_of(v.held_until) or 0) > now then return {'wait', {}} end
redis.call('HSET', key, 'holder', who, 'held_until', num(now + silence))

-- Returns how many precede the first that the action has not processed.
local function dealt_with()
  if not number_of(v.after) or not v.after_id then return 0 end
  local before = redis.call('ZCARD', v.source) - place_behind(v.source, v.after, v.after_id)
  local there = redis.call('ZSCORE', v.source, v.after_id)
  return there and tonumber(there) == tonumber(v.after) and before + 1 or before
end

local ids = redis.call('ZRANGEBYSCORE', v.source, '-inf', v['until'], 'LIMIT', dealt_with(), most)
while v.picked == '1' and #ids > 0 do
  local due = {}
  for _, each in ipairs(ids) do
    local failed_at = redis.call('ZSCORE', keys.ended('failed'), each)
    if failed_at and tonumber(failed_at) > number_of(v['until']) then
      redis.call('ZREM', v.source, each)
      redis.call('HINCRBY', key, 'gone', 1)
    else
      due[#due + 1] = each
    end
  end
  if #due > 0 then
    ids = due
    break
  end
  ids = redis.call('ZRANGEBYSCORE', v.source, '-inf', v['until'], 'LIMIT', 0, most)
end
if #ids == 0 then
  redis.call('HSET', key, 'state', 'finished', 'ended_at', NOW)
  return {'stop', {}}
end
return {'work', ids, redis.call('ZSCORE', v.source, ids[#ids])}
