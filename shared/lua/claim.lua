-- Takes pending tasks for one worker and gives it a lease on each.
-- ARGV: now, worker, token (new for each claim), lease in microseconds, how many at most (500 are never exceeded: Lua's
--   stack and everybody else's patience are bounded), how many bytes of data at most, then queue and quota in turns: first every queue gives up to its quota, then the rest is filled in order.
--   A last pair of "" and the token of the worker's next claim leaves a standing order when too few tasks were found:
--   `submit.lua` may answer that claim before it is sent.
-- Returns {now, ids whose record cannot be read, 1 when it is worth asking again at once, the tasks: each id, queue, type, data, attempt, failures,
--   crashes, losses, timeout, retry, meta, enqueued at ("" if not known), how its parents ended (JSON, "" for none)}.
-- Sent again with the same token it gives the same tasks, as far as the worker still holds them.
local worker, token, lease, want, room = ARGV[2], ARGV[3], ARGV[4], math.min(tonumber(ARGV[5]), 500), tonumber(ARGV[6])
local NAMES = {'state', 'description', 'data', 'attempt', 'failures', 'crashes', 'losses', 'timeout', 'retry', 'meta',
  'expires_at', 'origin', 'token', 'unique', 'links'}
local stamp, until_ = iso(now), num(now + tonumber(lease))
local tasks, unreadable, taken = {}, {}, {}
write_even_when_full()

-- What a task is told of the tasks that it waited for: {id, state, result (as RQ has it) or error} of each parent, and the
-- counts of the batch that it comes after. What is larger than a claim may be together is left out, and said to be.
local function heritage(id)
  local v = fields(id, 'parents', 'after_batch')
  local told = {}
  if v[1] then
    told.parents = {}
    for at, parent in ipairs(cjson.decode(v[1])) do
      local state, found = state_of(parent[1]), ''
      if state == 'completed' then
        local last = redis.pcall('XREVRANGE', 'rq:results:' .. parent[1], '+', '-', 'COUNT', 1)
        local entry = type(last) == 'table' and last[1] and last[1][2] or {}
        for i = 1, #entry, 2 do
          if entry[i] == 'return_value' then found = entry[i + 1] end
        end
      elseif state == 'failed' then
        found = redis.call('HGET', job_key(parent[1]), 'error') or ''
      end
      room = room - #found
      if room < 0 then state, found = state .. ' too-large', '' end
      told.parents[at] = {parent[1], state, found}
    end
  end
  if v[2] then
    told.batch = {id = v[2]}
    local b = redis.call('HGETALL', batch_key(v[2]))
    for i = 1, #b, 2 do told.batch[b[i]] = b[i + 1] end
  end
  return (told.parents or told.batch) and cjson.encode(told) or ''
end

local function describe(id, queue, v, attempt, enqueued)
  return {id, queue, v[2], v[3], attempt, tonumber(v[5]) or 0, tonumber(v[6]) or 0, tonumber(v[7]) or 0, v[8] or '',
    v[9] or '', v[10] or '', enqueued, v[15] and heritage(id) or ''}
end

local claim_key = 'taskqueue:claim:' .. worker
redis.call('ZREM', STANDING, worker)
local last = redis.call('GET', claim_key)
if last and string.sub(last, 1, #token) == token then
  for id in string.gmatch(string.sub(last, #token + 2), '%S+') do
    local v = fields(id, unpack(NAMES))
    if v and v[1] == 'running' and v[13] == token then
      -- The worker counts its lease from when it asked again.
      redis.call('ZADD', LEASES, until_, id)
      tasks[#tasks + 1] = describe(id, v[12], v, tonumber(v[4]), '')
    end
  end
  return {NOW, unreadable, 1, tasks}
end

-- A record that nobody can read must not stop the queue: it is set aside among the dead letters, where it is shown.
local function set_aside(id, queue, v)
  unreadable[#unreadable + 1] = id
  if v and not (v[1] or v[2] or v[3]) then
    redis.call('ZREM', TASKS, id)
    return
  end
  if v then
    redis.call('HSET', job_key(id), 'state', 'failed', 'status', 'failed', 'ended_at', stamp, 'error',
      '{"type":"CorruptRecord","message":"the stored record lacks its type or its data and cannot be run"}')
  end
  enter_ended(id, 'failed', queue)
  count('failed', 1)
  if v then moved(id, 'pending', 'failed') end
end

local function expire(id, queue, tied)
  redis.call('HSET', job_key(id), 'state', 'expired', 'status', 'canceled', 'ended_at', stamp)
  redis.call('ZREM', DEADLINES, id)
  enter_ended(id, 'expired', queue)
  count('expired', 1)
  if tied then moved(id, 'pending', 'expired') end
end

-- Whether a task that is tied to others may start; the batch of one that may not was stopped.
local function may_start(id, queue)
  local batch = redis.call('HGET', job_key(id), 'batch')
  local why = batch and stopped(batch)
  if why then cancel_waiting(id, 'pending', queue, why) end
  return not why
end

-- Starts up to `most` of them; returns how many it started and how many were stale. What is living and not started goes
-- back to the front in its order. Reading stops when the data would be more than the caller wants at once.
local function start(queue, ids, scores, most)
  local leases, started, gone, left, before, stale = {}, {}, {}, {}, #tasks, 0
  for i, id in ipairs(ids) do
    if not scores[i] or taken[id] then
      stale = stale + 1
    else
      if room <= 0 or #tasks - before >= most then
        table.insert(left, 1, id)
      else
        taken[id] = true
        gone[#gone + 1] = id
        local v = fields(id, unpack(NAMES))
        if not (v and v[2] and v[3]) then
          set_aside(id, queue, v)
        elseif v[11] and tonumber(v[11]) <= now then
          expire(id, queue, v[15])
        elseif not v[15] or may_start(id, queue) then
          local attempt = (tonumber(v[4]) or 0) + 1
          redis.call('HSET', job_key(id), 'state', 'running', 'status', 'started', 'started_at', stamp,
            'worker_name', worker, 'attempt', attempt, 'token', token)
          if v[11] then redis.call('ZREM', DEADLINES, id) end
          if v[14] and redis.call('HGET', job_key(id), 'unique_until') == 'start' then release_unique(id, v[14]) end
          if v[15] then moved(id, 'pending', 'running') end
          leases[#leases + 1] = until_
          leases[#leases + 1] = id
          started[#started + 1] = '+inf'
          started[#started + 1] = id .. ':' .. token
          tasks[#tasks + 1] = describe(id, queue, v, attempt, scores[i])
          room = room - #v[3]
        end
      end
    end
  end
  if #left > 0 then redis.call('LPUSH', 'rq:queue:' .. queue, unpack(left)) end
  if #gone > 0 then redis.call('ZREM', 'taskqueue:pending:' .. queue, unpack(gone)) end
  if #leases > 0 then
    redis.call('ZADD', LEASES, unpack(leases))
    redis.call('ZADD', 'rq:wip:' .. queue, unpack(started))
  end
  return #tasks - before, stale
end

-- Tickets may be stale (cancelled, expired, delivered twice), so a queue is asked until it gave enough or is empty; where
-- stale ones were met, many at a time. After 5,000 the claim answers with what it has and asks to be sent again.
local empty, patience = {}, 5000
local function take(queue, n)
  local got, stale = 0, 0
  while got < n and room > 0 and not empty[queue] and patience > 0 do
    local ids = redis.call('LPOP', 'rq:queue:' .. queue, stale > 0 and 500 or n - got)
    if not ids or #ids == 0 then
      empty[queue] = true
      return
    end
    patience = patience - #ids
    local started
    started, stale = start(queue, ids, redis.call('ZMSCORE', 'taskqueue:pending:' .. queue, unpack(ids)), n - got)
    got = got + started
  end
end

-- What ended tasks owe to others is dealt with before anything new is begun: about a millisecond's worth.
local owing = redis.call('EXISTS', OWED) == 1 and pay(200) > 0

local queues, next_token = {}, nil
for at = 7, #ARGV, 2 do
  if ARGV[at] == '' then next_token = ARGV[at + 1]
  else queues[#queues + 1] = {name = ARGV[at], quota = tonumber(ARGV[at + 1])} end
end
if redis.call('EXISTS', PAUSED) == 1 then
  local open = {}
  for _, queue in ipairs(queues) do
    if redis.call('HEXISTS', PAUSED, queue.name) == 0 then open[#open + 1] = queue end
  end
  queues = open
end
for _, queue in ipairs(queues) do
  if queue.quota > 0 then take(queue.name, math.min(queue.quota, want - #tasks)) end
end
for _, queue in ipairs(queues) do
  if #tasks < want then take(queue.name, want - #tasks) end
end

if #tasks > 0 then
  local ids = {}
  for i, task in ipairs(tasks) do ids[i] = task[1] end
  redis.call('SET', claim_key, token .. ' ' .. table.concat(ids, ' '), 'EX', 60)
end
local more = patience <= 0 or (owing and redis.call('EXISTS', OWED) == 1)
if #tasks == want then
  for _, queue in ipairs(queues) do
    if redis.call('EXISTS', 'rq:queue:' .. queue.name) == 1 then
      more = true
      ring(1)
      break
    end
  end
end
if next_token and #tasks < want and not more then
  local order = {worker, next_token, lease, num(want - #tasks), num(room), unpack(ARGV, 7)}
  order[#order], order[#order - 1] = nil, nil
  redis.call('SET', 'taskqueue:order:' .. worker, cjson.encode(order), 'EX', 60)
  redis.call('ZADD', STANDING, NOW, worker)
end
return {NOW, unreadable, more and 1 or 0, tasks}
