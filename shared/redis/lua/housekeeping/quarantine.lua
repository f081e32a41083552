-- @include _prelude
-- Quarantines keys of the whole system, and of each queue, that hold another type than expected.
-- ARGV: now, lock and token of the caller, then alternating names and types; a name ending with a colon is per queue.
-- Returns alternating the names of the quarantined keys and the types they held.
-- It always runs with `_quarantine.lua` in front, whose `put_away` it uses.
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
write_even_when_full()
local found = {}

local function look_at(key, wanted)
  local held = redis.call('TYPE', key).ok
  if held == 'none' or held == wanted then return end
  found[#found + 1] = key
  found[#found + 1] = put_away(key)
end

look_at(keys.RQ_QUEUES, 'set')
look_at(keys.ADOPTED_LANES, 'set')
local queues = listed_lanes()
for at = 4, #ARGV, 2 do
  local name, wanted = ARGV[at], ARGV[at + 1]
  if string.sub(name, -1) ~= ':' then look_at(name, wanted)
  else
    for _, queue in ipairs(queues) do
      local lane = lane_of_key(queue)
      if wanted == 'list' or queue_of(lane) == lane then look_at(name .. lane, wanted) end -- the rest is by queue
    end
  end
end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', keys.QUARANTINE, '-inf', num(now - 604800000000))) do
  redis.call('ZREM', keys.QUARANTINE, old)
end
return found
