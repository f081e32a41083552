-- @include _prelude _webhooks _relations
-- Moves the due tasks of one queue to its lists of queue entries.
-- ARGV: now, queue, how many at most, lock and token of the caller (see `lock_ended`).
-- Returns {moved, lateness in microseconds of the latest of them, when the next one is due ("" for never)}.
local queue, limit = ARGV[2], tonumber(ARGV[3])
if lock_ended(ARGV[4], ARGV[5]) then return LOCK_ENDED end
write_even_when_full()
local stamp = iso(now)
local promoted, latest = 0, 0

local function promote(state, most)
  local key = index_key(state, queue)
  local due = redis.call('ZRANGEBYSCORE', key, '-inf', NOW, 'WITHSCORES', 'LIMIT', 0, most)
  local ids, scores, lanes = {}, {}, {}
  for at = 1, #due, 2 do
    local id = due[at]
    latest = math.max(latest, now - (number_of(due[at + 1]) or now))
    local relations, task_type, awaits, score, tenant = record_values(id, 'relations', 'description', 'awaits', 'score', 'fair_key')
    if relations == nil then -- the key is not a hash
      enter_ended(id, 'failed', queue)
      redis.call('ZREM', key, id)
    elseif relations and held_back(id, state, queue, 0) then
      promoted = promoted + 1
    else
      if awaits then list_wait(id) end
      set_state(id, state, 'pending', 'enqueued_at', stamp)
      if relations then moved(id, state, 'pending') end
      ids[#ids + 1] = id
      local lane = lane_for(queue, task_type or '')
      if place_of(score) then
        enter_wait_queue(id, lane, '', tenant or '', num(now + #ids), score)
        notify_workers(1, lane)
      else
        lanes[lane] = lanes[lane] or {}
        table.insert(lanes[lane], id)
        scores[#scores + 1] = num(now + #ids)
        scores[#scores + 1] = id
      end
    end
  end
  if #ids == 0 then return end
  redis.call('ZREM', key, unpack(ids))
  redis.call('ZREM', keys.rq_scheduled(queue), unpack(ids))
  if #scores > 0 then redis.call('ZADD', keys.pending(queue), unpack(scores)) end
  for lane, entries in pairs(lanes) do
    redis.call('RPUSH', keys.rq_queue(lane), unpack(entries))
    list_lane(lane, entries[1])
    notify_workers(#entries, lane)
  end
  promoted = promoted + #ids
end

promote('retrying', limit)
if promoted < limit then promote('scheduled', limit - promoted) end

local next_due = ''
for _, state in ipairs({'retrying', 'scheduled'}) do
  local first = redis.call('ZRANGE', index_key(state, queue), 0, 0, 'WITHSCORES')[2]
  if number_of(first) and (next_due == '' or tonumber(first) < tonumber(next_due)) then next_due = first end
end
return {promoted, num(latest), next_due}
