-- @include _prelude _webhooks _relations _limits _types _worker_queues
-- Takes pending tasks for one worker and gives it a lease on each.
-- ARGV: now, worker, token (new for each claim), lease in microseconds, how many at most (500 are never exceeded: Lua's
--   stack and the latency of other clients are bounded), how many bytes of data at most, then alternating queue and quota:
--   first every queue gives up to its quota, then the rest is filled in order. A quota such as 4/1 means that the worker
--   may take one task of that queue at most.
--   A last pair of "" and the token of the worker's next claim leaves a parked claim when too few tasks were found:
--   `submit_one.lua` may answer that claim before it is sent.
-- Returns {now, ids of corrupt records, 1 when it is worth claiming again at once, the tasks: each id, queue, type,
--   data, attempt, failures, crashes, losses, timeout, retry, meta, enqueued at ("" if unknown), its parents' results
--   (JSON, "" for none), then in how many microseconds a rate allows the next start (-1: no task waits for that)}.
-- Repeated with the same token it gives the same tasks, as far as the worker still holds them.
local worker, token, lease, want, room = ARGV[2], ARGV[3], ARGV[4], math.min(tonumber(ARGV[5]), 500), tonumber(ARGV[6])
local NAMES = {'state', 'description', 'data', 'attempt', 'failures', 'crashes', 'losses', 'time_limit', 'retry', 'meta',
  'expires_at', 'origin', 'token', 'unique', 'relations', 'limit_key', 'fair_key', 'refused'}
-- Their places: a table by names would make a claim of ten tasks 3 % slower.
local STATE, TYPE, DATA, ATTEMPT, EXPIRES_AT, ORIGIN, TOKEN, UNIQUE, RELATIONS = 1, 2, 3, 4, 11, 12, 13, 14, 15
local LIMIT_KEY, FAIR_KEY, REFUSED = 16, 17, 18
-- Without wait queues the last three are not needed.
if not limited then NAMES[REFUSED], NAMES[FAIR_KEY], NAMES[LIMIT_KEY] = nil, nil, nil end
local stamp, until_ = iso(now), num(now + tonumber(lease))
local tasks, unreadable, taken = {}, {}, {}

-- About how many commands this claim may still send. When they are used up, it returns what it has and asks to be
-- repeated: some 3 ms of Redis. These are what one task of a kind costs at most; `test_command_bounds.py` counts.
local patience = 2000
local COST = {plain = 2, related = 10, throttled = 10, by_age = 12, ended = 25, deferred = 30}
local function spend(commands) patience = patience - commands end

write_even_when_full()

-- Returns these fields of a task; nil when the key is not a hash.
local function waiting_task(id)
  local t = redis.pcall('HMGET', keys.rq_job(id), unpack(NAMES))
  if not t.err then return t end
end

-- Returns a task's parents' results: {id, state, result (as RQ has it) or error} of each parent, and the counts of the
-- batch that it follows. What exceeds the size of a claim is left out, which is marked; other tasks of this claim do
-- not count, but it leaves less room for later ones.
local function parent_results(id)
  local t = record(id, 'parents', 'after_batch')
  local results, left = {}, tonumber(ARGV[6])
  if t.parents then
    results.parents = {}
    for at, parent in ipairs(parents_of(t.parents)) do
      spend(2)
      local state, found = state_of(parent[1]), ''
      if state == 'completed' then
        found = result_of(parent[1]) or ''
      elseif state == 'failed' then
        found = redis.call('HGET', keys.rq_job(parent[1]), 'error') or ''
      end
      left = left - #found
      if left < 0 then left, state, found = 0, state .. ' too-large', '' end
      room = room - #found
      results.parents[at] = {parent[1], state, found}
    end
  end
  if t.after_batch then
    results.batch = {id = t.after_batch}
    local b = redis.pcall('HGETALL', keys.batch(t.after_batch))
    for i = 1, #b, 2 do results.batch[b[i]] = b[i + 1] end
  end
  return (results.parents or results.batch) and cjson.encode(results) or ''
end

local function describe(id, queue, t, attempt, enqueued)
  local _, task_type, data, _, failures, crashes, losses, time_limit, retry, meta = unpack(t, 1, 10)
  return {id, queue, task_type, data, attempt, number_of(failures) or 0, number_of(crashes) or 0,
    number_of(losses) or 0, time_limit or '', retry or '', meta or '', enqueued, t[RELATIONS] and parent_results(id) or ''}
end

local claim_key = keys.claim(worker)
redis.call('ZREM', keys.PARKED_CLAIMS, worker)
-- A direct dispatch is recorded apart from the last claim, which may still have to be repeated.
for _, key in ipairs({claim_key, keys.dispatched(worker)}) do
  local last = redis.call('GET', key)
  if last and string.sub(last, 1, #token) == token then
    for id in string.gmatch(string.sub(last, #token + 2), '%S+') do
      local t = waiting_task(id)
      if t and t[STATE] == 'running' and t[TOKEN] == token then
        -- The worker counts its lease from its repeated claim.
        redis.call('ZADD', keys.LEASES, until_, id)
        tasks[#tasks + 1] = describe(id, t[ORIGIN], t, number_of(t[ATTEMPT]) or 1, '')
      end
    end
    return {NOW, unreadable, 1, tasks, -1}
  end
end

-- A corrupt record must not stop the queue: it is moved to the dead letters, where it is shown.
local function dead_letter_corrupt(id, queue, t)
  spend(COST.ended)
  unreadable[#unreadable + 1] = id
  if not t then enter_ended(id, 'failed', queue)
  elseif t[STATE] or t[TYPE] or t[DATA] then
    transition(id, 'pending', 'failed', queue, nil, 'error',
      '{"type":"CorruptRecord","message":"the stored record lacks its type or its data and cannot be run"}')
  else
    redis.call('ZREM', keys.TASKS, id)
    return
  end
  count('failed', 1)
  if t then moved(id, 'pending', 'failed') end
end

local function expire(id, queue, relations)
  spend(COST.ended)
  transition(id, 'pending', 'expired', queue)
  count('expired', 1)
  if relations then moved(id, 'pending', 'expired') end
end

-- Returns whether a task with relations may start; the batch of one that may not was stopped.
local function may_start(id, queue)
  local batch = redis.call('HGET', keys.rq_job(id), 'batch')
  local why = batch and stopped(batch)
  if why then
    spend(COST.ended)
    cancel_waiting(id, 'pending', queue, why)
  end
  return not why
end

-- Writes for started tasks are collected, so they cost the same few commands however many there are.
local leases, started = {}, {}

local function begin(id, queue, t, score)
  local attempt = math.max(0, math.floor(number_of(t[ATTEMPT]) or 0)) + 1
  set_state(id, 'pending', 'running', 'started_at', stamp, 'worker_name', worker, 'attempt', attempt, 'token', token)
  spend((t[RELATIONS] and COST.related or COST.plain) + (t[UNIQUE] and 3 or 0))
  if t[EXPIRES_AT] then redis.call('ZREM', keys.DEADLINES, id) end
  if t[UNIQUE] and redis.call('HGET', keys.rq_job(id), 'unique_until') == 'start' then release_unique(id, t[UNIQUE]) end
  if t[RELATIONS] then moved(id, 'pending', 'running') end
  started[queue] = started[queue] or {}
  leases[#leases + 1] = until_
  leases[#leases + 1] = id
  table.insert(started[queue], '+inf')
  table.insert(started[queue], id .. ':' .. token)
  tasks[#tasks + 1] = describe(id, queue, t, attempt, score)
  room = room - #t[DATA]
end

local function keep_leases()
  if #leases > 0 then redis.call('ZADD', keys.LEASES, unpack(leases)) end
  for queue, members in pairs(started) do redis.call('ZADD', keys.rq_started(queue), unpack(members)) end
end

local looked_at = {}

-- Returns whether this worker cannot run a task: it lacks the type, or its version of it has refused the data.
local own_set = redis.call('HGET', keys.TYPES_OF, worker)
if own_set == '-' then own_set = false end
local function lacks(task_type, refused)
  local version = not own_set or version_of(own_set, task_type)
  if not version then return is_published(own_set) end
  return own_set and refused and string.find(refused, version, 1, true)
end

-- Returns the tenant of a task in the wait queue of a limit. A receiver that does not answer delays mostly its own.
local function tenant_of(id, t)
  return t[FAIR_KEY] or t[TYPE] == 'taskqueue.webhook' and redis.call('HGET', keys.rq_job(id), 'receiver') or ''
end

-- Returns the wait queue of a task from the list that cannot start: that of a limit, or that of its tenant.
local function wait_queue_for(id, t)
  if t[FAIR_KEY] and t[FAIR_KEY] ~= '' then return '', t[FAIR_KEY] end
  local names = limit_names(t[TYPE], t[LIMIT_KEY])
  local limit = limit_in_the_way(names)
  if limit then
    looked_at[limit] = true
    return limit, tenant_of(id, t)
  end
  spend(take_part(id, names))
end

-- Moves a task that this worker cannot run to its wait queue. Returns true when it did.
local function make_way(id, queue, t, score)
  if not lacks(t[TYPE], t[REFUSED]) then return false end
  if string.find(t[TYPE], '[^%w._-]') then -- no type has such a name
    dead_letter_corrupt(id, queue, t)
  else
    spend(COST.throttled + wait_for_worker(id, queue, t[TYPE], t[REFUSED], tenant_of(id, t), score))
  end
  return true
end

-- Returns a pending task that may start; one that may not is ended or moved.
local function startable(id, queue, score)
  local t = waiting_task(id)
  if not (t and t[TYPE] and t[DATA]) then return dead_letter_corrupt(id, queue, t) end
  if t[EXPIRES_AT] and (number_of(t[EXPIRES_AT]) or math.huge) <= now then return expire(id, queue, t[RELATIONS]) end
  if t[RELATIONS] and not may_start(id, queue) then return end
  if not make_way(id, queue, t, score) then return t end
end

-- Takes the next task out of the list: it is started unless it cannot be or is throttled.
local function take_one(id, queue, score)
  local t = startable(id, queue, score)
  if not t then return end
  local group, tenant
  if limited then group, tenant = wait_queue_for(id, t) end
  if not group then return begin(id, queue, t, score) end
  spend(COST.throttled)
  enter_wait_queue(id, queue, group, tenant, score)
end

-- Removes entries that lead to no pending task; parks the foreign ones among them first.
local function park_foreign_entries(queue, ids, scores)
  local strange = {}
  for i, id in ipairs(ids) do
    if not scores[i] and not taken[id] then strange[#strange + 1] = id end
  end
  spend(park_foreign(queue, strange))
end

-- Starts up to `most` of them; returns how many it started and how many were stale or throttled. Valid entries that were
-- not examined go back to the front in their order. Reading stops when the data would exceed the requested size.
local function start(queue, ids, scores, most)
  local gone, left, before, stale = {}, {}, #tasks, 0
  for i, id in ipairs(ids) do
    if not scores[i] or taken[id] then
      stale = stale + 1
    elseif room <= 0 or patience <= 0 or #tasks - before >= most then
      table.insert(left, 1, id)
    else
      taken[id] = true
      gone[#gone + 1] = id
      take_one(id, queue, scores[i])
    end
  end
  if #left > 0 then redis.call('LPUSH', keys.rq_queue(queue), unpack(left)) end
  if #gone > 0 then redis.call('ZREM', keys.pending(queue), unpack(gone)) end
  return #tasks - before, stale + #gone - (#tasks - before)
end

-- Entries may be stale (cancelled, expired, delivered twice), so a queue is read until it gave enough or is empty; after
-- stale ones, many at a time.
local empty = {}
local function take_from_list(queue, n)
  local got, stale, list = 0, 0, keys.rq_queue(queue)
  while got < n and room > 0 and not empty[queue] and patience > 0 do
    local ids = redis.call('LRANGE', list, 0, (stale > 0 and 200 or n - got) - 1)
    if #ids == 0 then
      empty[queue] = true
      return
    end
    spend(0.4 * #ids) -- a stale entry costs no command, but some time
    local scores = redis.call('ZMSCORE', keys.pending(queue), unpack(ids))
    park_foreign_entries(queue, ids, scores)
    redis.call('LTRIM', list, #ids, -1)
    local begun
    begun, stale = start(queue, ids, scores, n - got)
    got = got + begun
  end
end

-- Deferred work of ended tasks is done before a new task starts: about a millisecond's worth.
local deferred = redis.call('EXISTS', keys.DEFERRED_WORK) == 1 and run_deferred_work(40)
if deferred then spend(deferred * COST.deferred) end

-- The requested queues, and those of them that may give something.
local asked, queues, next_token = {}, {}, nil
local any_paused = redis.call('EXISTS', keys.PAUSED) == 1
for at = 7, #ARGV, 2 do
  if ARGV[at] == '' then next_token = ARGV[at + 1]
  else
    local quota, most = string.match(ARGV[at + 1], '^(%d+)/?(%d*)$')
    local queue = {name = ARGV[at], quota = tonumber(quota), most = tonumber(most) or math.huge}
    asked[#asked + 1] = queue
    if queue.most > 0 and not (any_paused and redis.call('HEXISTS', keys.PAUSED, queue.name) == 1) then
      queues[#queues + 1] = queue
    end
  end
end

-- Where limits have wait queues or tenants take turns, a queue is more than its list: the oldest of the next tasks of
-- the list and of each wait queue that may move goes first, so that a limit delays only its own tasks.
-- Wait queues that are all in queues that are paused or not this worker's, or that it cannot serve, are skipped, a
-- millisecond's worth of them.
local MOST_LIMITS, MOST_LOOKS = 32, 500
local found = limited and redis.call('ZRANGEBYSCORE', keys.LIMITS_DUE, '-inf', NOW, 'LIMIT', 0, MOST_LOOKS) or {}
local due, elsewhere = {}, {}

local function waited_for_here(name)
  local here = {}
  for at, queue in ipairs(queues) do here[at] = tenants_key(queue.name, name) end
  return #here > 0 and redis.call('EXISTS', unpack(here)) > 0
end

spend(#found)
for _, name in ipairs(found) do
  if #due == MOST_LIMITS then break end
  local ours = (not own_set or set_serves(own_set, name)) and waited_for_here(name)
  table.insert(ours and due or elsewhere, name)
end
local has_tenants = {}
for _, queue in ipairs(limited and redis.call('SMEMBERS', keys.FAIR) or {}) do has_tenants[queue] = true end

-- Returns the next task in the wait queues of a limit; nil when they are empty.
local function first_waiting(queue, group)
  while patience > 0 do
    spend(3)
    local tenant = redis.call('ZRANGE', tenants_key(queue, group), 0, 0)[1]
    if not tenant then return nil end
    local first = redis.call('ZRANGE', keys.wait_queue(wait_queue_name(queue, group, tenant)), 0, 0, 'WITHSCORES')
    if first[1] then return {id = first[1], score = first[2], group = group, tenant = tenant} end
    redis.call('ZREM', tenants_key(queue, group), tenant)
  end
end

local function first_in_list(queue)
  while patience > 0 do
    local id = redis.call('LINDEX', keys.rq_queue(queue), 0)
    if not id then return nil end
    local score = redis.call('ZSCORE', keys.pending(queue), id)
    if score and not taken[id] then return {id = id, score = score, tenant = ''} end
    park_foreign_entries(queue, {id}, {score})
    redis.call('LPOP', keys.rq_queue(queue))
    spend(3)
  end
end

-- The list is one more tenant beside those with wait queues.
local function first_of_tenants(queue)
  redis.call('ZADD', tenants_key(queue, ''), 'NX', NOW, '')
  while patience > 0 do
    spend(5)
    local names = redis.call('ZRANGE', tenants_key(queue, ''), 0, 1)
    if not names[2] then
      redis.call('DEL', tenants_key(queue, ''))
      redis.call('SREM', keys.FAIR, queue)
      has_tenants[queue] = nil
      return first_in_list(queue)
    end
    local first = names[1] == '' and first_in_list(queue)
    if first then return first end
    local tenant = names[1] == '' and names[2] or names[1]
    local next_one = redis.call('ZRANGE', keys.wait_queue(wait_queue_name(queue, '', tenant)), 0, 0, 'WITHSCORES')
    if next_one[1] then return {id = next_one[1], score = next_one[2], group = '', tenant = tenant} end
    redis.call('ZREM', tenants_key(queue, ''), tenant)
  end
end

-- An entry of a wait queue is a hint, as a queue entry is: the index of throttled tasks decides whether it may be taken.
local function leave_throttled(id, queue, wait_queue, group, tenant)
  redis.call('ZREM', keys.wait_queue(wait_queue), id)
  if redis.call('ZREM', keys.throttled(queue), id) == 0 then return false end
  redis.call('ZREM', keys.rq_deferred(queue), id)
  redis.call('HDEL', keys.rq_job(id), 'wait_queue')
  turn_taken(queue, group, tenant)
  return true
end

-- Takes the next task out of a wait queue. One that another limit holds back moves to that one's wait queue.
local function take_throttled(first, queue)
  local id, wait_queue = first.id, wait_queue_name(queue, first.group, first.tenant)
  if not leave_throttled(id, queue, wait_queue, first.group, first.tenant) then return end
  local t = startable(id, queue, first.score)
  if not t then return end
  local names = limit_names(t[TYPE], t[LIMIT_KEY])
  local limit = limit_in_the_way(names)
  if limit then
    looked_at[limit] = true
    return enter_wait_queue(id, queue, limit, tenant_of(id, t), first.score)
  end
  spend(take_part(id, names))
  begin(id, queue, t, first.score)
end

local function take_by_age(queue, n)
  local firsts, enough = {}, #tasks + n
  local function look(group)
    if group == 'list' then
      firsts[group] = (has_tenants[queue] and first_of_tenants or first_in_list)(queue) or false
    else
      firsts[group] = first_waiting(queue, group) or false
    end
  end
  while #tasks < enough and room > 0 and patience > 0 do
    local best, from
    for _, group in ipairs({'list', unpack(due)}) do
      if group == 'list' or lets_start(limit_of(group)) then
        if firsts[group] == nil then look(group) end
        local first = firsts[group]
        if first and (not best or tonumber(first.score) < tonumber(best.score)) then best, from = first, group end
      end
    end
    if not best then return end
    spend(COST.by_age)
    firsts[from] = nil
    if best.group then
      take_throttled(best, queue)
    else
      redis.call('LPOP', keys.rq_queue(queue))
      start(queue, {best.id}, {best.score}, 1)
      if has_tenants[queue] then turn_taken(queue, '', '') end
    end
  end
end

local function has_wait_queues(queue)
  if has_tenants[queue] then return true end
  local wait_queues = {}
  for at, group in ipairs(due) do wait_queues[at] = tenants_key(queue, group) end
  return #wait_queues > 0 and redis.call('EXISTS', unpack(wait_queues)) > 0
end

local function take(queue, n)
  local before = #tasks
  n = math.min(n, queue.most, want - before)
  if n <= 0 then return end
  if limited and has_wait_queues(queue.name) then take_by_age(queue.name, n) else take_from_list(queue.name, n) end
  queue.most = queue.most - (#tasks - before)
end

for _, queue in ipairs(queues) do take(queue, queue.quota) end
for _, queue in ipairs(queues) do take(queue, want) end

keep_leases()
if #tasks > 0 then
  local ids = {}
  for i, task in ipairs(tasks) do ids[i] = task[1] end
  redis.call('SET', claim_key, token .. ' ' .. table.concat(ids, ' '), 'EX', 60)
end
local more = patience <= 0 or (deferred and deferred > 0 and redis.call('EXISTS', keys.DEFERRED_WORK) == 1)

-- Sets when to check the wait queues of each examined limit again; returns whether one of ours is due at once.
local function settle_limit(name)
  local limit, wait_queues = limit_of(name), {}
  for at, key in ipairs(redis.call('SMEMBERS', keys.RQ_QUEUES)) do
    wait_queues[at] = tenants_key(queue_of(key), name)
  end
  if #wait_queues == 0 or redis.call('EXISTS', unpack(wait_queues)) == 0 then
    redis.call('ZREM', keys.LIMITS_DUE, name)
    return false
  end
  redis.call('ZADD', keys.LIMITS_DUE, due_of(limit), name)
  return lets_start(limit) and waited_for_here(name)
end

-- Skipped limits are examined last the next time; the wait queues of some may be removed altogether.
local function settle_elsewhere()
  local latest = {}
  for at, name in ipairs(elsewhere) do
    if at <= MOST_LIMITS then settle_limit(name)
    else
      latest[#latest + 1] = NOW
      latest[#latest + 1] = name
    end
  end
  if #latest > 0 then redis.call('ZADD', keys.LIMITS_DUE, unpack(latest)) end
end

local again_in, tasks_wait = -1, false
if limited then
  for _, name in ipairs(due) do looked_at[name] = true end
  for name in pairs(looked_at) do tasks_wait = settle_limit(name) or tasks_wait end
  settle_elsewhere()
  local next_due = redis.call('ZRANGEBYSCORE', keys.LIMITS_DUE, '(' .. NOW, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if next_due[2] then again_in = tonumber(next_due[2]) - now end
  for _, queue in ipairs(queues) do tasks_wait = tasks_wait or has_tenants[queue.name] end
  more = more or (#due == MOST_LIMITS and #tasks > 0)
end

-- The rest is for the next worker, and for this one unless it may take no more of that queue.
for _, queue in ipairs(queues) do
  local full = queue.most == 0
  if (full or #tasks == want) and (tasks_wait or redis.call('EXISTS', keys.rq_queue(queue.name)) == 1) then
    notify_workers(1, queue.name)
    if not full then
      more = true
      break
    end
  end
end
if next_token and #tasks < want and not more then
  local order = {worker, next_token, lease, num(want - #tasks), num(room)}
  for _, queue in ipairs(asked) do
    if queue.most > 0 then
      order[#order + 1] = queue.name
      order[#order + 1] = queue.quota
    end
  end
  redis.call('SET', keys.parked_claim(worker), cjson.encode(order), 'EX', 60)
  redis.call('ZADD', keys.PARKED_CLAIMS, NOW, worker)
end
return {NOW, unreadable, more and 1 or 0, tasks, again_in}
