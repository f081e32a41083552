-- @include _prelude
-- Quarantines keys of the whole system, and of each queue, that hold another type than expected.
-- ARGV: now, lock and token of the caller, how many queues it works on, these queues, then alternating names and types;
--   a name ending with a colon is per queue: of these and of all that RQ's register lists, which may itself be corrupt.
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
local lanes, seen, pairs_at = {}, {}, 5 + ARGV[4]
local function add(lane)
  if not seen[lane] then lanes[#lanes + 1] = lane end
  seen[lane] = true
end
for _, key in ipairs(listed_lanes()) do add(lane_of_key(key)) end
for at = 5, pairs_at - 1 do
  add(ARGV[at])
  add(ARGV[at] .. '+')
end
for at = pairs_at, #ARGV, 2 do
  local name, wanted = ARGV[at], ARGV[at + 1]
  if string.sub(name, -1) ~= ':' then look_at(name, wanted)
  else
    for _, lane in ipairs(lanes) do
      if wanted == 'list' or queue_of(lane) == lane then look_at(name .. lane, wanted) end -- the rest is by queue
    end
  end
end
for _, old in ipairs(redis.call('ZRANGEBYSCORE', keys.QUARANTINE, '-inf', num(now - 604800000000))) do
  redis.call('ZREM', keys.QUARANTINE, old)
end
return found
