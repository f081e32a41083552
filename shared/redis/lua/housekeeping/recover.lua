-- @include _prelude _restore
-- Restores lost queue entries of pending tasks: a list deleted by hand, an entry popped by a foreign program.
-- A queue's list and its index of pending tasks are in the same order, so the oldest pending tasks must be near the
-- front of the list. Only a task that is not there is searched for in the whole list, and few of those.
-- ARGV: now, queue, grace in microseconds, how many to check, lock and token of the caller.
-- Returns how many entries were restored; -1 when so many may be missing that the whole list has to be checked.
local queue, most = ARGV[2], tonumber(ARGV[4])
if lock_ended(ARGV[5], ARGV[6]) then return LOCK_ENDED end
write_even_when_full()
local lists, pend = {keys.rq_queue(queue), keys.rq_queue(queue .. '+')}, keys.pending(queue)

-- Parked foreign jobs that RQ has removed, cancelled or run since are dropped; a hundred are checked.
local foreign = keys.foreign(queue)
local parked = redis.call('ZCARD', foreign)
local from = parked > 100 and math.floor(now / 1000000) % parked or 0
for _, id in ipairs(parked > 0 and redis.call('ZRANGE', foreign, from, from + 99) or {}) do
  if not waits_for_rq(id) then redis.call('ZREM', foreign, id) end
end

-- Stale entries in front would hide valid ones, and would never leave a queue without workers. Foreign jobs among
-- them are parked.
local sent = 0
for _, list in ipairs(lists) do
  for _ = 1, 20 do
    local front = redis.call('LRANGE', list, 0, most - 1)
    if #front == 0 then break end
    local scores, stale = redis.call('ZMSCORE', pend, unpack(front)), 0
    while stale < #front and not scores[stale + 1] do stale = stale + 1 end
    sent = sent + park_foreign(queue, {unpack(front, 1, stale)})
    if stale > 0 then redis.call('LTRIM', list, stale, -1) end
    if stale < #front then break end
    if sent > 1000 then return 0 end -- the next run continues
  end
end

local old = redis.call('ZRANGEBYSCORE', pend, '-inf', num(now - tonumber(ARGV[3])), 'LIMIT', 0, most)
if #old == 0 then return 0 end

local window = most * 2
local near, long, lost, searched = {}, {}, {}, 0
for _, list in ipairs(lists) do
  if redis.call('LLEN', list) > window then long[#long + 1] = list end
  for _, id in ipairs(redis.call('LRANGE', list, 0, window - 1)) do near[id] = true end
end
for _, id in ipairs(old) do
  if not near[id] then
    local found = false
    if #long > 0 then
      searched = searched + 1
      if searched > 2 then return -1 end
      for _, list in ipairs(long) do found = found or redis.call('LPOS', list, id) end
    end
    if not found then lost[#lost + 1] = id end
  end
end
restore_entries(queue, lost)
return #lost
