-- @include _prelude _types
-- Records a worker's heartbeat, for us and for RQ's tools. A full Redis takes it too: it must not look like one whose
-- workers have died.
-- ARGV: now, worker, for how many seconds RQ's tools show it, its current work (JSON), its queues (a JSON array), its fields for
--   RQ (a JSON array of names and values in turns), for how many seconds its record is kept, the digest of its set of task types
--   ("-" while it takes no tasks), its host, its types that blocked an event loop (a JSON array): they are serial ones until the
--   next worker starts, how many tasks it can run at a time, and how many it runs.
-- Returns 1, or 0 when that set has to be published first (see `_types.lua`).
local LONGEST = 10000000 -- between two heartbeats of a worker that is not silent
local worker, life = ARGV[2], ARGV[3]
local rq = keys.rq_worker(worker)
write_even_when_full()
-- Its running tasks are counted as if they had been the same since its last heartbeat.
local last = tonumber(redis.call('ZSCORE', keys.WORKERS, worker) or nil)
local passed = last and math.floor(math.max(0, math.min(now - last, LONGEST)) / 1000) or 0
count('slot_ms', math.floor((tonumber(ARGV[11]) or 0) * passed))
count('busy_ms', math.floor((tonumber(ARGV[12]) or 0) * passed))
redis.call('ZADD', keys.WORKERS, NOW, worker)
redis.call('ZREM', keys.LOST_WORKERS, worker)
redis.call('SET', keys.worker(worker), ARGV[4], 'EX', ARGV[7])
redis.call('HSET', rq, 'last_heartbeat', iso(now), unpack(cjson.decode(ARGV[6])))
-- It names no `current_job`: rq-dashboard reads that one by the worker's serializer, pickle, and would answer 500.
redis.call('EXPIRE', rq, life)
if redis.call('SADD', keys.RQ_WORKERS, rq) == 1 then
  for _, queue in ipairs(cjson.decode(ARGV[5])) do redis.call('SADD', keys.rq_workers(queue), rq) end
end
local lost = ARGV[8] ~= '-' and (not is_published(ARGV[8]) or redis.call('EXISTS', keys.TYPE_VERSIONS) == 0)
if lost then return 0 end

-- Records which types are concurrent. The last worker that comes with other types than before decides: it is the newest
-- in an update, and the oldest in its rollback. Any worker runs the tasks of both lanes.
local function note_kinds(versions)
  local of_kind = {SADD = {}, SREM = {}}
  for at = 1, #versions, 2 do
    local names = of_kind[string.sub(versions[at + 1], -1) == '+' and 'SADD' or 'SREM']
    names[#names + 1] = versions[at]
  end
  for command, names in pairs(of_kind) do
    for at = 1, #names, 1000 do
      redis.call(command, keys.CONCURRENT_TYPES, unpack(names, at, math.min(at + 999, #names)))
    end
  end
end

local before = redis.call('HGET', keys.TYPES_OF, worker)
redis.call('HSET', keys.TYPES_OF, worker, ARGV[8])
if ARGV[8] == '-' then return 1 end
if before ~= ARGV[8] then note_kinds(redis.call('HGETALL', keys.type_set(ARGV[8]))) end
local blocking = cjson.decode(ARGV[10])
if #blocking > 0 then redis.call('SREM', keys.CONCURRENT_TYPES, unpack(blocking)) end
redis.call('ZADD', keys.TYPE_SETS, NOW, ARGV[8])
redis.call('HSET', keys.type_set(ARGV[8]), '@host', ARGV[9])

-- Records when a version was first seen serving. Versions with a heartbeat in the last ten minutes stay; of the others the
-- newest 200.
local MOST_VERSIONS, LIVING = 200, 600000000
local version = string.match(ARGV[4], '"app_version": "([%w._+:/@-]+)"')
if version then
  redis.call('ZADD', keys.DEPLOYS_SEEN, NOW, version)
  if redis.call('ZADD', keys.DEPLOYS, 'NX', NOW, version) == 1 then
    local over = redis.call('ZCOUNT', keys.DEPLOYS_SEEN, '-inf', num(now - LIVING)) - MOST_VERSIONS
    if over > 0 then
      local old = redis.call('ZRANGE', keys.DEPLOYS_SEEN, 0, math.min(over, 100) - 1)
      redis.call('ZREM', keys.DEPLOYS, unpack(old))
      redis.call('ZREM', keys.DEPLOYS_SEEN, unpack(old))
    end
  end
end
return 1
