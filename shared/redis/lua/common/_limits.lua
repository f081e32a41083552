-- Included by the scripts that start tasks, end attempts or throttle tasks: limits, and turns between tenants.
-- A limit (`type:NAME` or `key:NAME`) bounds how many of its tasks run at once (slots), how many start in a time
-- (tokens in a bucket that fills steadily), or both. A pending task that its limit holds back is moved to a wait queue
-- of that limit, so that it does not block later tasks; tasks of tenants are in wait queues too and take turns.
-- A wait queue is named `queue|limit|tenant`; its tasks stay pending and are listed in `keys.throttled` by when
-- they were enqueued. For RQ they are deferred. A paused type holds its tasks back as a limit of `type:NAME` does. A task
-- with a score waits in the wait queue of its tenant from the beginning: a list has only the order of its entries.

-- One check for a whole step: without limits, tenants and pauses, nothing else of this file is run.
local limited = redis.call('EXISTS', keys.LIMITS, keys.LIMITS_DUE, keys.FAIR, keys.PAUSED) > 0
local known_limits = {}

local lanes_of = {} -- by limit; all of them at ''
local function all_lanes()
  if not lanes_of[''] then
    lanes_of[''] = listed_lanes()
    for at, key in ipairs(lanes_of['']) do lanes_of[''][at] = lane_of_key(key) end
  end
  return lanes_of['']
end

-- Returns the lanes in which tenants wait for a limit, or waited.
local function lanes_with_tenants(group)
  local of_key, names = {}, {}
  for at, lane in ipairs(all_lanes()) do
    names[at] = tenants_key(lane, group)
    of_key[names[at]] = lane
  end
  local lanes = existing_keys(names)
  for at, key in ipairs(lanes) do lanes[at] = of_key[key] end
  return lanes
end

-- Returns the lanes of the queues with throttled tasks, for steps that only read.
local function throttled_lanes()
  local of_key, names, lanes = {}, {}, {}
  for _, lane in ipairs(all_lanes()) do
    local key = keys.throttled(queue_of(lane))
    if not of_key[key] then
      of_key[key] = {}
      names[#names + 1] = key
    end
    table.insert(of_key[key], lane)
  end
  for _, key in ipairs(existing_keys(names)) do
    for _, lane in ipairs(of_key[key]) do lanes[#lanes + 1] = lane end
  end
  return lanes
end

local function read_limit(name, text)
  local ok, spec = pcall(cjson.decode, text)
  if not ok or type(spec) ~= 'table' then return false end
  local function given(field) return type(spec[field]) == 'number' and number_of(spec[field]) or nil end
  local limit = {name = name, concurrency = given('concurrency')}
  if limit.concurrency then limit.free = limit.concurrency - redis.call('SCARD', keys.slots(name)) end
  if given('count') and (given('per') or 0) > 0 and given('burst') then
    limit.rate, limit.burst = spec.count / (spec.per * 1000000), spec.burst
    local v = hash(keys.bucket(name), 'tokens', 'at')
    local since = math.max(0, now - (number_of(v.at) or now))
    limit.tokens = math.min(limit.burst, (number_of(v.tokens) or limit.burst) + since * limit.rate)
  end
  return limit
end

-- Returns the limit of this name as of this step, or false.
local function limit_of(name)
  if known_limits[name] == nil then
    local text = redis.call('HGET', keys.LIMITS, name)
    known_limits[name] = text and read_limit(name, text) or false
    if redis.call('HEXISTS', keys.PAUSED, name) == 1 then
      known_limits[name] = known_limits[name] or {name = name}
      known_limits[name].paused = true
    end
  end
  return known_limits[name]
end

local function limit_names(task_type, key)
  local names = {}
  if task_type then names[1] = 'type:' .. task_type end
  if key and key ~= '' then names[#names + 1] = 'key:' .. key end
  return names
end

local function has_slot(limit) return not limit.paused and (not limit.free or limit.free > 0) end
local function lets_start(limit)
  return not limit or (has_slot(limit) and (not limit.tokens or limit.tokens > 0.999999))
end

-- Returns the name of the first limit that holds a task back, or nil.
local function limit_in_the_way(names)
  for _, name in ipairs(names) do
    if not lets_start(limit_of(name)) then return name end
  end
end

local function keep_tokens(limit)
  redis.call('HSET', keys.bucket(limit.name), 'tokens', string.format('%.6f', limit.tokens), 'at', NOW)
  -- An empty bucket is full again by then, and a missing one counts as full.
  if limit.rate > 0 then
    redis.call('PEXPIRE', keys.bucket(limit.name), num(math.ceil(limit.burst / limit.rate / 1000) + 1000))
  end
end

-- Takes a slot and a token of each limit of a task that starts. Returns how many commands that took.
local function take_part(id, names)
  local sent = 0
  for _, name in ipairs(names) do
    local limit = limit_of(name)
    if limit then sent = sent + 3 end
    if limit and limit.free then limit.free = limit.free - redis.call('SADD', keys.slots(name), id) end
    if limit and limit.tokens then
      limit.tokens = limit.tokens - 1
      keep_tokens(limit)
    end
  end
  return sent
end

-- Wakes a worker of each lane in which tasks wait for this limit.
local function wake_for_limit(name)
  lanes_of[name] = lanes_of[name] or lanes_with_tenants(name)
  for _, lane in ipairs(lanes_of[name]) do notify_workers(1, lane) end
end

-- Frees the slot of an ended or returned attempt, and wakes the workers that wait for it.
local function free_slot(name, id)
  if redis.call('SREM', keys.slots(name), id) == 1 and redis.call('ZADD', keys.LIMITS_DUE, 'XX', 'CH', NOW, name) == 1 then
    wake_for_limit(name)
  end
end

local function free_slots(id)
  local t = record(id, 'description', 'limit_key')
  for _, name in ipairs(t and limit_names(t.description, t.limit_key) or {}) do free_slot(name, id) end
end

-- Returns the tokens of a task that was returned before it began, and wakes the workers that wait for them.
local function give_tokens_back(id)
  local t = record(id, 'description', 'limit_key')
  for _, name in ipairs(t and limit_names(t.description, t.limit_key) or {}) do
    local limit = limit_of(name)
    if limit and limit.tokens then
      limit.tokens = math.min(limit.burst, limit.tokens + 1)
      keep_tokens(limit)
      if redis.call('ZADD', keys.LIMITS_DUE, 'XX', 'CH', NOW, name) == 1 then wake_for_limit(name) end
    end
  end
end

-- Returns when to check the wait queues of a limit: now, when its next token is there, or when a slot is freed or a pause
-- ends.
local function due_of(limit)
  if not limit or lets_start(limit) then return NOW end
  if not has_slot(limit) or limit.rate == 0 then return '+inf' end
  return num(now + math.ceil((1 - limit.tokens) / limit.rate))
end
