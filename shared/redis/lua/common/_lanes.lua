-- A queue has two lanes, each with a list of queue entries, wake-ups and wait queues of its own: `QUEUE` for tasks that
-- run one at a time in a process, `QUEUE+` for tasks of concurrent types. A backlog of the one kind must not keep the
-- executors of the other kind idle. All other structures are by queue.

-- Returns the lane of a key in `keys.RQ_QUEUES`.
local function lane_of_key(key) return string.sub(key, #keys.rq_queue('') + 1) end

local function queue_of(lane) return (string.gsub(lane, '%+$', '')) end

-- Returns the lane for tasks of this type.
local function lane_for(queue, task_type)
  return redis.call('SISMEMBER', keys.CONCURRENT_TYPES, task_type) == 1 and queue .. '+' or queue
end

-- Returns the existing keys among these, found by halving: one command when there are none.
local function existing_keys(names)
  local found = {}
  local function look(first, last)
    local there = redis.call('EXISTS', unpack(names, first, last))
    if there == last - first + 1 then
      for at = first, last do found[#found + 1] = names[at] end
    elseif there > 0 then
      local middle = math.floor((first + last) / 2)
      look(first, middle)
      look(middle + 1, last)
    end
  end
  for first = 1, #names, 1000 do look(first, math.min(first + 999, #names)) end -- Lua's stack is bounded
  return found
end

-- Returns whether a queue matches one of these patterns, which are separated by spaces.
local function matches_one(patterns, queue)
  for pattern in string.gmatch(patterns, '%S+') do
    if string.find(queue, pattern) then return true end
  end
  return false
end

-- Makes idle workers claim: the wake-up lists that they wait for may lack a new lane.
local function announce_lane(but)
  for _, claimant in ipairs(redis.call('ZRANGE', keys.PARKED_CLAIMS, 0, 31)) do
    local worker = queue_of(claimant) -- a claimant has the suffix of its lane
    if worker ~= but then
      redis.call('RPUSH', keys.control(worker), 'look')
      redis.call('EXPIRE', keys.control(worker), 3600)
    end
  end
end

-- RQ has the job of such a task in its own structures: its tools must not see the same job twice. A record of another type
-- is none.
local function is_rq_job(id) return redis.pcall('HGET', keys.rq_job(id), 'description') == 'firmq.rq-job' end

-- Returns the keys of all lanes that held a task.
local function listed_lanes()
  local names = redis.call('SMEMBERS', keys.RQ_QUEUES)
  for _, key in ipairs(redis.call('SMEMBERS', keys.ADOPTED_LANES)) do
    if redis.call('SISMEMBER', keys.RQ_QUEUES, key) == 0 then names[#names + 1] = key end
  end
  return names
end

-- Lists the lane of a task that gets an entry, and registers the queue of a new one. A worker that gets the first task by
-- direct dispatch finds the lane by that; a claim would cross it.
local function list_lane(lane, id, dispatched_to)
  local key = keys.rq_queue(lane)
  if redis.call('SISMEMBER', keys.RQ_QUEUES, key) == 1 then return end
  if redis.call('SADD', is_rq_job(id) and keys.ADOPTED_LANES or keys.RQ_QUEUES, key) == 0 then return end
  redis.call('ZADD', keys.QUEUES, 'NX', NOW, queue_of(lane))
  announce_lane(dispatched_to)
end

-- Registers the queue of a new task, and its use once a minute. Returns false when it is one too many. `bounds` is how
-- many pending tasks a queue may hold, and where it has them, how many queues there may be and the configured ones, which
-- there may be in any case: "1000 200 |normal|low|".
local function register_queue(queue, bounds)
  local used = redis.call('ZSCORE', keys.QUEUES, queue)
  if used and tonumber(used) > now - 60000000 then return true end
  local most = not used and tonumber(string.match(bounds, '^%d+ (%d+)'))
  if most and redis.call('ZCARD', keys.QUEUES) >= most and not string.find(bounds, '|' .. queue .. '|', 1, true) then
    return false
  end
  redis.call('ZADD', keys.QUEUES, NOW, queue)
  return true
end
