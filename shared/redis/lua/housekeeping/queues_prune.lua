-- @include _prelude
-- Removes queues that are not configured, hold nothing and were not used for some time; registers those that the register
-- lacks and that hold something.
-- ARGV: now, lock and token of the caller, for how long a queue was not used in microseconds, then the configured ones.
-- Returns how many were removed. It looks at a hundred; the others follow in the next runs.
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
write_even_when_full()
local configured, removed = {}, 0
for at = 5, #ARGV do configured[ARGV[at]] = true end

local function is_used(queue)
  return redis.call('EXISTS', keys.pending(queue), keys.throttled(queue), keys.scheduled(queue), keys.retrying(queue),
    keys.rq_started(queue), keys.rq_deferred(queue), keys.foreign(queue)) > 0
end

-- RQ's structures do not show whether a queue is ours: RQ programs may have queues of their own beside it.
local function is_ours(queue)
  return redis.call('EXISTS', keys.pending(queue), keys.throttled(queue), keys.scheduled(queue), keys.retrying(queue)) > 0
end

local function holds_entries(queue)
  return redis.call('EXISTS', keys.rq_queue(queue), keys.rq_queue(queue .. '+')) > 0
end

local function drop(queue)
  redis.call('ZREM', keys.QUEUES, queue)
  for _, lane in ipairs({queue, queue .. '+'}) do
    redis.call('SREM', keys.RQ_QUEUES, keys.rq_queue(lane))
    redis.call('SREM', keys.ADOPTED_LANES, keys.rq_queue(lane))
    redis.call('SREM', keys.FAIR, lane)
    redis.call('DEL', keys.wakeup(lane))
  end
  redis.call('DEL', keys.rq_workers(queue))
  removed = removed + 1
end

local before = num(now - tonumber(ARGV[4]))
for _, queue in ipairs(redis.call('ZRANGEBYSCORE', keys.QUEUES, '-inf', before, 'LIMIT', 0, 100)) do
  if is_used(queue) or holds_entries(queue) or redis.call('HEXISTS', keys.PAUSED, queue) == 1 then
    redis.call('ZADD', keys.QUEUES, NOW, queue)
  elseif not configured[queue] then drop(queue) end
end
local listed = listed_lanes()
for at, key in ipairs(listed) do listed[at] = queue_of(lane_of_key(key)) end
for first = 1, #listed, 1000 do
  local known = redis.call('ZMSCORE', keys.QUEUES, unpack(listed, first, math.min(first + 999, #listed)))
  for at, score in ipairs(known) do
    local queue = listed[first + at - 1]
    if not score and is_ours(queue) then redis.call('ZADD', keys.QUEUES, NOW, queue) end
  end
end
return removed
