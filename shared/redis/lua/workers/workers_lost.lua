-- @include _prelude
-- Moves silent workers from the live to the lost, and removes lost ones after their retention.
-- ARGV: now, how long lost ones are kept in microseconds, how many at most, all queues (a JSON array), then two per
--   worker: its name, its last heartbeat as the caller read it (-inf where the stored score is no time). A worker that
--   has sent another heartbeat since then stays.
--   After an outage of Redis none is moved for as long as leases are extended (`reap.lua`).
-- Returns the names of those that were moved.
local FORGOTTEN_AT_ONCE = 200
local queues = cjson.decode(ARGV[4])
write_even_when_full()
local moved_names = {}

local function leave_rq(name)
  local rq = keys.rq_worker(name)
  redis.call('SREM', keys.RQ_WORKERS, rq)
  for _, queue in ipairs(queues) do redis.call('SREM', keys.rq_workers(queue), rq) end
end

local grace = (number_of(redis.call('HGET', keys.REAPER, 'until')) or 0) > now
for at = 5, grace and 0 or #ARGV, 2 do
  local name, seen = ARGV[at], redis.call('ZSCORE', keys.WORKERS, ARGV[at])
  if seen and tonumber(seen) == tonumber(ARGV[at + 1]) then
    redis.call('ZREM', keys.WORKERS, name)
    redis.call('ZADD', keys.LOST_WORKERS, seen, name)
    redis.call('HDEL', keys.TYPES_OF, name)
    leave_rq(name)
    moved_names[#moved_names + 1] = name
  end
end

local function forget(names)
  for _, name in ipairs(names) do
    redis.call('ZREM', keys.LOST_WORKERS, name)
    redis.call('ZREM', keys.REASSIGNED, name)
    redis.call('DEL', keys.worker(name))
  end
end

forget(redis.call('ZRANGEBYSCORE', keys.LOST_WORKERS, '-inf', num(now - tonumber(ARGV[2])), 'LIMIT', 0, FORGOTTEN_AT_ONCE))
local beyond = math.min(redis.call('ZCARD', keys.LOST_WORKERS) - tonumber(ARGV[3]), FORGOTTEN_AT_ONCE)
if beyond > 0 then forget(redis.call('ZRANGE', keys.LOST_WORKERS, 0, beyond - 1)) end
return moved_names
