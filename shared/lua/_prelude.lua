-- Put in front of every script: time, key names and the small steps that scripts share.
-- The first argument of every script is the instant to work with in microseconds, or "" to ask this server. No
-- client's clock decides anything in production; tests hand the instant over instead of waiting.
-- Numbers go to Redis as text made by num(): Lua's own conversion keeps 14 digits, and a microsecond has 16.

local function read_clock(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local now = read_clock(ARGV[1])

local function num(x) return string.format('%.0f', x) end

-- An instant as RQ writes it: 2026-11-21T08:45:00.123456Z. Days to date after Howard Hinnant's civil_from_days.
local function iso(us)
  local seconds = math.floor(us / 1000000)
  local days = math.floor(seconds / 86400)
  local rest = seconds - days * 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day, math.floor(rest / 3600),
    math.floor(rest % 3600 / 60), rest % 60, us - seconds * 1000000)
end

local NOW = num(now)
local TASKS, BLOCKED, LEASES = 'taskqueue:tasks', 'taskqueue:blocked', 'taskqueue:leases'
local DEADLINES, BELL, PAUSED = 'taskqueue:deadlines', 'taskqueue:bell', 'taskqueue:paused'

local function job_key(id) return 'rq:job:' .. id end

-- Which of our indexes holds a task of this state.
local function index_key(state, queue)
  if state == 'pending' or state == 'scheduled' or state == 'retrying' then
    return 'taskqueue:' .. state .. ':' .. queue
  end
  if state == 'running' then return LEASES end
  return 'taskqueue:' .. state
end

-- Which of RQ's structures mirrors it; pending is a list and running has a member of its own, so neither is here.
local RQ_REGISTRY = {
  scheduled = 'rq:scheduled:', retrying = 'rq:scheduled:', blocked = 'rq:deferred:', completed = 'rq:finished:',
  failed = 'rq:failed:', cancelled = 'rq:canceled:', expired = 'rq:canceled:',
}
local RQ_STATUS = {
  scheduled = 'scheduled', retrying = 'scheduled', blocked = 'deferred', pending = 'queued', running = 'started',
  completed = 'finished', failed = 'failed', cancelled = 'canceled', expired = 'canceled',
}

-- Fields of a record, or nil when the key is no hash.
local function fields(id, ...)
  local values = redis.pcall('HMGET', job_key(id), ...)
  if values.err then return nil end
  return values
end

-- Takes a task out of the structures of its state.
local function leave(id, state, queue, token)
  redis.call('ZREM', index_key(state, queue), id)
  if state == 'running' then
    redis.call('ZREM', 'rq:wip:' .. queue, id .. ':' .. token)
  elseif RQ_REGISTRY[state] then
    redis.call('ZREM', RQ_REGISTRY[state] .. queue, id)
  end
end

-- Puts a task into the structures of a final state. RQ's score is +inf: only our retention removes a record.
local function enter_ended(id, state, queue)
  redis.call('ZADD', 'taskqueue:' .. state, NOW, id)
  redis.call('ZADD', RQ_REGISTRY[state] .. queue, '+inf', id)
end

-- Puts a task into the structures of a state that has a due time.
local function enter_due(id, state, queue, due)
  redis.call('ZADD', index_key(state, queue), num(due), id)
  redis.call('ZADD', RQ_REGISTRY[state] .. queue, num(math.floor(due / 1000000)), id)
end

-- A task that is to start by a moment is found by the expire script from here on.
local function watch_deadline(id, expires_at)
  if expires_at then redis.call('ZADD', DEADLINES, expires_at, id) end
end

-- Wakes idle workers. The bound keeps a burst from leaving thousands of stale rings behind; a worker that is woken
-- and finds more than it can take rings for the next one.
local function ring(tasks)
  local rings = math.min(tasks, 64 - redis.call('LLEN', BELL))
  for _ = 1, rings do redis.call('RPUSH', BELL, '1') end
end

-- A full Redis (maxmemory) refuses a script's first write when that could grow memory, and lets it finish once it has
-- written. Steps that end or free something begin with a write that is never refused, so that work already done can
-- still be recorded; new tasks are what a full Redis turns away.
local function write_even_when_full() redis.call('DEL', 'taskqueue:nothing') end

-- Adds to the counts of this minute.
local function count(what, n)
  if n == 0 then return end
  local key = 'taskqueue:throughput:' .. num(math.floor(now / 60000000))
  if redis.call('HINCRBY', key, what, n) == n then redis.call('EXPIRE', key, 7200) end
end

-- One item of an attempt's history; the oldest goes when there are more than 50.
local function remember(id, attempt, record)
  redis.call('HSET', job_key(id), 'attempt:' .. attempt, record)
  if attempt > 50 then redis.call('HDEL', job_key(id), 'attempt:' .. num(attempt - 50)) end
end

-- Removes every trace of a task from every structure that could hold it.
local function remove(id, state, queue, token)
  local values = fields(id, 'description', 'tags')
  leave(id, state, queue, token)
  redis.call('ZREM', TASKS, id)
  redis.call('ZREM', DEADLINES, id)
  if values and values[1] then redis.call('ZREM', 'taskqueue:tasks:type:' .. values[1], id) end
  if values and values[2] then
    for _, tag in ipairs(cjson.decode(values[2])) do redis.call('ZREM', 'taskqueue:tasks:tag:' .. tag, id) end
  end
  redis.call('UNLINK', job_key(id), 'rq:results:' .. id)
end
