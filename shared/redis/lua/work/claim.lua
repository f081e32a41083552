-- @include _prelude _webhooks _relations _limits _types _worker_queues
-- Takes pending tasks for one worker and gives it a lease on each.
-- ARGV: now, worker, token (new for each claim), lease in microseconds, how many at most (500 are never exceeded: Lua's
--   stack and the latency of other clients are bounded), how many bytes of data at most, then alternating lane (see the
--   prelude) and quota: first every lane gives up to its quota, then the rest is filled in order. A quota such as 4/1
--   means that the worker may take one task of that lane at most. All lanes are of one kind, and a worker has one claim
--   for each kind. In place of a lane, "*" (for that kind "*+") comes with patterns, separated by spaces: other registered
--   queues that match one fill the rest of the claim.
--   A last pair of "" and the token of the worker's next claim leaves a parked claim when too few tasks were found:
--   `submit_one.lua` may answer that claim before it is sent. In its place "<" with the lowest and the highest score,
--   separated by a space, takes no task with another one; the score of a task without one is when it was enqueued.
-- Returns {now, ids of corrupt records, 1 when it is worth claiming again at once, the tasks: each id, queue, type,
--   data, attempt, failures, crashes, losses, timeout, retry, meta, enqueued at ("" if unknown), its parents' results
--   (JSON, "" for none), suspicions, for an RQ job what `rq_job` returns, then in how many microseconds a rate allows the
--   next start (-1: no task waits for that)}.
-- Repeated with the same token it gives the same tasks, as far as the worker still holds them.
local worker, token, want, room = ARGV[2], ARGV[3], math.min(tonumber(ARGV[5]), 500), tonumber(ARGV[6])
-- The lowest and the highest place in wait queues that it takes from; nil for all. Such a claim goes by turns.
local range = ARGV[#ARGV - 1] == '<' and {string.match(ARGV[#ARGV], '^(%S+) (%S+)$')} or nil
limited = limited or range ~= nil
local NAMES = {'state', 'description', 'data', 'attempt', 'failures', 'crashes', 'losses', 'time_limit', 'retry', 'meta',
  'expires_at', 'origin', 'token', 'unique', 'relations', 'suspicions', 'refused', 'limit_key', 'fair_key', 'score'}
-- Their places: a table by names would make a claim of ten tasks 3 % slower.
local STATE, TYPE, DATA, ATTEMPT, EXPIRES_AT, ORIGIN, TOKEN, UNIQUE, RELATIONS = 1, 2, 3, 4, 11, 12, 13, 14, 15
local SUSPICIONS, REFUSED, LIMIT_KEY, FAIR_KEY, SCORE = 16, 17, 18, 19, 20
-- Without wait queues these are not needed.
if not limited then NAMES[SCORE], NAMES[FAIR_KEY], NAMES[LIMIT_KEY] = nil, nil, nil end
local tasks, unreadable, taken = {}, {}, {}

-- About how many commands this claim may still send. When they are used up, it returns what it has and asks to be
-- repeated: some 3 ms of Redis. These are what one task of a kind costs at most; `test_command_bounds.py` counts.
local COST = {all = 2000, plain = 2, related = 10, throttled = 10, by_turn = 12, ended = 25, deferred = 30}
local patience = COST.all
local function spend(commands) patience = patience - commands end

write_even_when_full()

-- Returns these fields of a task; nil when the key is not a hash.
local function waiting_task(id)
  local t = redis.pcall('HMGET', keys.rq_job(id), unpack(NAMES))
  if not t.err then return t end
end

local describe
do -- Lua has room for 200 local names at a time.
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
          found = result_of(parent[1])
        elseif state == 'failed' then
          found = redis.call('HGET', keys.rq_job(parent[1]), 'error')
        end
        found = found or ''
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

  -- Returns of the RQ job that a task was made of whether others depend on it, and the fields that `ClaimedJob` names;
  -- nil for a job that the executor has to read itself, as a large one.
  local MOST_CARRIED = 65536
  local function rq_job(task)
    spend(3)
    local id = string.match(redis.call('HGET', keys.RQ_ADOPTED, task) or '', '^%S* (.*)$')
    if not id then return nil end
    local job = redis.pcall('HMGET', keys.rq_job(id), 'status', 'enqueued_at', 'data', 'meta', 'timeout', 'result_ttl',
      'success_callback_name', 'failure_callback_name', 'stopped_callback_name', 'dependency_ids', 'repeats_left',
      'rate_limit_key')
    if job.err or not job[3] or #job[3] > MOST_CARRIED or #(job[4] or '') > MOST_CARRIED then return nil end
    room = room - #job[3] - #(job[4] or '')
    table.insert(job, 1, redis.call('EXISTS', keys.rq_job(id .. ':dependents')))
    return job
  end

  function describe(id, queue, t, attempt, enqueued)
    local _, task_type, data, _, failures, crashes, losses, time_limit, retry, meta = unpack(t, 1, 10)
    return {id, queue, task_type, data, attempt, number_of(failures) or 0, number_of(crashes) or 0,
      number_of(losses) or 0, time_limit or '', retry or '', meta or '', enqueued, t[RELATIONS] and parent_results(id) or '',
      number_of(t[SUSPICIONS]) or 0, task_type == 'firmq.rq-job' and rq_job(id) or nil}
  end
end

local kind = string.sub(ARGV[7], -1) == '+' and '+' or ''
local claimant = worker .. kind
local was_idle = redis.call('ZREM', keys.PARKED_CLAIMS, claimant) == 1
-- A direct dispatch is recorded apart from the last claim, which may still have to be repeated.
for _, last in ipairs(redis.call('MGET', keys.claim(claimant), keys.dispatched(claimant))) do
  if last and string.sub(last, 1, #token) == token then
    for id in string.gmatch(string.sub(last, #token + 2), '%S+') do
      local t = waiting_task(id)
      if t and t[STATE] == 'running' and t[TOKEN] == token then
        -- The worker counts its lease from its repeated claim.
        redis.call('ZADD', keys.LEASES, num(now + tonumber(ARGV[4])), id)
        tasks[#tasks + 1] = describe(id, t[ORIGIN], t, number_of(t[ATTEMPT]) or 1, '')
      end
    end
    return {NOW, unreadable, 1, tasks, -1}
  end
end

-- Writes for started tasks are collected, so they cost the same few commands however many there are.
local begin, keep_leases
do
  local leases, started, stamp, until_ = {}, {}, iso(now), num(now + tonumber(ARGV[4]))

  function begin(id, queue, t, score)
    local attempt = math.max(0, math.floor(number_of(t[ATTEMPT]) or 0)) + 1
    set_state(id, 'pending', 'running', 'started_at', stamp, 'worker_name', worker, 'attempt', attempt, 'token', token)
    spend((t[RELATIONS] and COST.related or COST.plain) + (t[UNIQUE] and 3 or 0))
    if t[EXPIRES_AT] then redis.call('ZREM', keys.DEADLINES, id) end
    if t[UNIQUE] and redis.call('HGET', keys.rq_job(id), 'unique_until') == 'start' then release_unique(id, t[UNIQUE]) end
    if t[RELATIONS] then moved(id, 'pending', 'running') end
    leases[#leases + 1] = until_
    leases[#leases + 1] = id
    if t[TYPE] ~= 'firmq.rq-job' then
      started[queue] = started[queue] or {}
      table.insert(started[queue], '+inf')
      table.insert(started[queue], id .. ':' .. token)
    end
    tasks[#tasks + 1] = describe(id, queue, t, attempt, score)
    room = room - #t[DATA]
  end

  function keep_leases()
    if #leases > 0 then redis.call('ZADD', keys.LEASES, unpack(leases)) end
    for queue, members in pairs(started) do redis.call('ZADD', keys.rq_started(queue), unpack(members)) end
  end
end

local looked_at, queue_of_lane = {}, {}

local own_set = redis.call('HGET', keys.TYPES_OF, worker)
if own_set == '-' then own_set = false end

-- Returns the tenant of a task in the wait queue of a limit. An unresponsive receiver delays only its own deliveries.
local function tenant_of(id, t)
  return t[FAIR_KEY] or t[TYPE] == 'firmq.webhook' and redis.call('HGET', keys.rq_job(id), 'receiver') or ''
end

local startable
do
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

  -- Returns whether this worker cannot run a task: it lacks the type, or its version of it has refused the data.
  local function lacks(task_type, refused)
    local version = not own_set or version_of(own_set, task_type)
    if not version then return is_published(own_set) end
    if not own_set or not refused then return false end
    if is_pinned(refused) then spend(20) end
    return not may_run(task_type, version, refused)
  end

  -- Moves a task that this worker cannot run to its wait queue. Returns true when it did.
  local function make_way(id, lane, t, enqueued)
    if not lacks(t[TYPE], t[REFUSED]) then return false end
    if string.find(t[TYPE], '[^%w._-]') then -- no type has such a name
      dead_letter_corrupt(id, queue_of_lane[lane], t)
    else
      spend(COST.throttled + wait_for_worker(id, lane, t[TYPE], t[REFUSED], tenant_of(id, t), enqueued, t[SCORE]))
    end
    return true
  end

  -- Returns a pending task that may start, and when it was enqueued; one that may not is ended or moved.
  function startable(id, lane, enqueued)
    local t, queue = waiting_task(id), queue_of_lane[lane]
    if not (t and t[TYPE] and t[DATA]) then return dead_letter_corrupt(id, queue, t) end
    if t[EXPIRES_AT] and (number_of(t[EXPIRES_AT]) or math.huge) <= now then return expire(id, queue, t[RELATIONS]) end
    if t[RELATIONS] and not may_start(id, queue) then return end
    if t[SCORE] then enqueued = num(microseconds(redis.call('HGET', keys.rq_job(id), 'enqueued_at')) or now) end
    if not make_way(id, lane, t, enqueued) then return t, enqueued end
  end
end

-- Removes entries that lead to no pending task; parks the foreign ones among them first.
local function park_foreign_entries(lane, ids, scores)
  local strange = {}
  for i, id in ipairs(ids) do
    if not scores[i] and not taken[id] then strange[#strange + 1] = id end
  end
  spend(park_foreign(queue_of_lane[lane], strange))
end

local has_tenants = {} -- by lane
for _, lane in ipairs(limited and redis.call('SMEMBERS', keys.FAIR) or {}) do has_tenants[lane] = true end

local start
do
  -- Returns the wait queue of a task from the list that cannot start: that of a limit, or that of its tenant.
  local function wait_queue_for(id, t)
    if t[SCORE] and place_of(t[SCORE]) or (t[FAIR_KEY] and t[FAIR_KEY] ~= '') then return '', t[FAIR_KEY] or '' end
    local names = limit_names(t[TYPE], t[LIMIT_KEY])
    local limit = limit_in_the_way(names)
    if limit then
      looked_at[limit] = true
      return limit, tenant_of(id, t)
    end
    spend(take_part(id, names))
  end

  -- Takes the next task out of the list: it is started unless it cannot be or is throttled.
  local function take_one(id, lane, score)
    local t, enqueued = startable(id, lane, score)
    if not t then return end
    local group, tenant
    if limited then group, tenant = wait_queue_for(id, t) end
    if not group then return begin(id, queue_of_lane[lane], t, enqueued) end
    spend(COST.throttled)
    enter_wait_queue(id, lane, group, tenant, enqueued, t[SCORE])
    if group == '' then has_tenants[lane] = true end
  end

  -- Starts up to `most` of them; returns how many it started and how many were stale or throttled. Valid entries that were
  -- not examined go back to the front in their order. Reading stops when the data would exceed the requested size.
  function start(lane, ids, scores, most)
    local gone, left, before, stale = {}, {}, #tasks, 0
    for i, id in ipairs(ids) do
      if not scores[i] or taken[id] then
        stale = stale + 1
      elseif room <= 0 or patience <= 0 or #tasks - before >= most then
        table.insert(left, 1, id)
      else
        taken[id] = true
        gone[#gone + 1] = id
        take_one(id, lane, scores[i])
      end
    end
    if #left > 0 and not range then redis.call('LPUSH', keys.rq_queue(lane), unpack(left)) end
    if #gone > 0 then redis.call('ZREM', keys.pending(queue_of_lane[lane]), unpack(gone)) end
    return #tasks - before, stale + #gone - (#tasks - before)
  end
end

-- Entries may be stale (cancelled, expired, delivered twice), so a queue is read until it gave enough or is empty; after
-- stale ones, many at a time.
local empty = {}
local function take_from_list(lane, n)
  local got, stale, list = 0, 0, keys.rq_queue(lane)
  while got < n and room > 0 and not empty[lane] and patience > 0 and not has_tenants[lane] do
    local ids = redis.call('LRANGE', list, 0, (stale > 0 and 200 or n - got) - 1)
    if #ids == 0 then
      empty[lane] = true
      return
    end
    spend(0.4 * #ids) -- a stale entry costs no command, but some time
    local scores = redis.call('ZMSCORE', keys.pending(queue_of_lane[lane]), unpack(ids))
    park_foreign_entries(lane, ids, scores)
    redis.call('LTRIM', list, #ids, -1)
    local begun
    begun, stale = start(lane, ids, scores, n - got)
    got = got + begun
  end
end

-- Deferred work of ended tasks is done before a new task starts: about a millisecond's worth.
local deferred, any_paused = false, false
if redis.call('EXISTS', keys.DEFERRED_WORK, keys.PAUSED) > 0 then
  any_paused = redis.call('EXISTS', keys.PAUSED) == 1
  deferred = redis.call('EXISTS', keys.DEFERRED_WORK) == 1 and run_deferred_work(40)
end
if deferred then spend(deferred * COST.deferred) end

-- The requested lanes, and those of them that may give something.
local asked, lanes, next_token, patterns = {}, {}, nil, nil
for at = 7, #ARGV, 2 do
  if ARGV[at] == '' then next_token = ARGV[at + 1]
  elseif ARGV[at] == '*' .. kind then patterns = ARGV[at + 1]
  elseif ARGV[at] ~= '<' then
    local quota, most = string.match(ARGV[at + 1], '^(%d+)/?(%d*)$')
    local lane = {name = ARGV[at], quota = tonumber(quota), most = tonumber(most) or math.huge}
    asked[#asked + 1] = lane
    queue_of_lane[lane.name] = queue_of(lane.name)
    if lane.most > 0 and not (any_paused and redis.call('HEXISTS', keys.PAUSED, queue_of_lane[lane.name]) == 1) then
      lanes[#lanes + 1] = lane
    end
  end
end

-- Where limits have wait queues or tenants take turns, a lane is more than its list: of the next tasks of the list and of
-- each wait queue that may move goes first the one whose tenant waits longest, and of one tenant the oldest. So a limit
-- delays only its own tasks, and a tenant no other, wherever the tasks of both wait. The list's tasks are one tenant.
-- Wait queues that are all in queues that are paused or not this worker's, or that it cannot serve, are skipped, a
-- millisecond's worth of them.
local due = {most = 32, elsewhere = {}}

local function waited_for_here(name)
  local here = {}
  for at, lane in ipairs(lanes) do here[at] = tenants_key(lane.name, name) end
  return #here > 0 and redis.call('EXISTS', unpack(here)) > 0
end

do
  local found = limited and redis.call('ZRANGEBYSCORE', keys.LIMITS_DUE, '-inf', NOW, 'LIMIT', 0,
    math.max(due.most, math.min(500, math.floor(16000 / math.max(1, #lanes))))) or {}
  spend(#found)
  for _, name in ipairs(found) do
    if #due == due.most or patience <= 0 then break end
    if string.find(name, '#=', 1, true) then spend(20) end
    local ours = (not own_set or set_serves(own_set, name)) and waited_for_here(name)
    table.insert(ours and due or due.elsewhere, name)
  end
end

local take_by_turn, store_turn
if limited then
  local low, high = range and place_of(range[1]) or '-inf', range and place_of(range[2]) or '+inf'
  -- When a tenant had its last turn in a lane, over the list and all wait queues. Those of its tenants are by that already,
  -- so without others only the turn of the list ('') is stored. Once forgotten, a turn costs the others one start.
  local TURN_KEPT = 600
  local turn_of, stored, contested = {}, {}, {}
  local function is_stored(tenant) return #due > 0 or tenant == '' end

  local function last_turn(lane, tenant)
    if not is_stored(tenant) then return 0 end
    contested[lane] = true
    turn_of[lane] = turn_of[lane] or {}
    if not turn_of[lane][tenant] then
      spend(1)
      turn_of[lane][tenant] = tonumber(redis.call('ZSCORE', keys.last_turn(lane), tenant) or 0)
    end
    return turn_of[lane][tenant]
  end

  local function turn_taken(lane, first)
    served = served + 1
    if first.group and (first.others or first.group == '') then
      redis.call('ZADD', tenants_key(lane, first.group), num(now + served), first.tenant)
    end
    if is_stored(first.tenant) then
      turn_of[lane], stored[lane] = turn_of[lane] or {}, stored[lane] or {}
      turn_of[lane][first.tenant], stored[lane][first.tenant] = now + served, num(now + served)
    end
  end

  function store_turn()
    for lane in pairs(contested) do
      local members = {}
      for tenant, turn in pairs(stored[lane] or {}) do
        members[#members + 1] = turn
        members[#members + 1] = tenant
      end
      if #members > 0 and redis.call('ZADD', keys.last_turn(lane), unpack(members)) > 0 then
        redis.call('ZREMRANGEBYSCORE', keys.last_turn(lane), '-inf', num(now - TURN_KEPT * 1000000))
        redis.call('EXPIRE', keys.last_turn(lane), TURN_KEPT)
      end
    end
  end

  -- Returns the next task in the wait queues of a limit or of tenants (''); nil when they are empty. `others` says whether
  -- other tenants wait there. One that had its turn in another wait queue since comes after these.
  local function first_waiting(lane, group)
    local wait_queues, passed = tenants_key(lane, group), 0
    while patience > 0 do
      spend(3)
      local tenant, turn, others = unpack(redis.call('ZRANGE', wait_queues, passed, passed + 1, 'WITHSCORES'))
      if not tenant then break end
      others = others or passed > 0
      local last = others and last_turn(lane, tenant) or 0
      if last > tonumber(turn) then redis.call('ZADD', wait_queues, num(last), tenant)
      else
        local wait_queue = keys.wait_queue(wait_queue_name(lane, group, tenant))
        local id, score = unpack(redis.call('ZRANGEBYSCORE', wait_queue, low, high, 'WITHSCORES', 'LIMIT', 0, 1))
        if id then return {id = id, score = score, group = group, tenant = tenant, turn = turn, others = others} end
        if range and redis.call('EXISTS', wait_queue) == 1 then
          passed = passed + 1
          -- Of more tenants than a claim can look at, it sees others each time.
          if passed == 200 then passed = passed + now % math.max(1, redis.call('ZCARD', wait_queues) - 400) end
        else redis.call('ZREM', wait_queues, tenant) end
      end
    end
    if group == '' and passed == 0 and patience > 0 then
      redis.call('SREM', keys.FAIR, lane)
      has_tenants[lane] = nil
    end
  end

  -- Returns the first task in the range: of the next entries of the list, else of the index, which has them of both kinds.
  local first_in_range = range and function(lane)
    local queue, passed = queue_of_lane[lane], 0
    local ids = redis.call('LRANGE', keys.rq_queue(lane), 0, 19)
    local scores = #ids > 0 and redis.call('ZMSCORE', keys.pending(queue), unpack(ids)) or {}
    for at, id in ipairs(ids) do
      local place = tonumber(scores[at])
      if place and not taken[id] and place >= (tonumber(low) or 0) and place <= (tonumber(high) or math.huge) then
        return {id = id, score = scores[at], tenant = '', turn = scores[at]}
      end
    end
    while #ids > 0 and patience > 0 do
      spend(3)
      local id, score = unpack(redis.call('ZRANGEBYSCORE', keys.pending(queue), low, high, 'WITHSCORES', 'LIMIT', passed, 1))
      if not id then return nil end
      if not taken[id] and lane_for(queue, (record(id, 'description') or {}).description or '') == lane then
        return {id = id, score = score, tenant = '', turn = score}
      end
      passed = passed + 1
    end
  end

  local function first_in_list(lane)
    if range then return first_in_range(lane) end
    while patience > 0 do
      local id = redis.call('LINDEX', keys.rq_queue(lane), 0)
      if not id then return nil end
      local score = redis.call('ZSCORE', keys.pending(queue_of_lane[lane]), id)
      if score and not taken[id] then return {id = id, score = score, tenant = '', turn = score} end
      park_foreign_entries(lane, {id}, {score})
      redis.call('LPOP', keys.rq_queue(lane))
      spend(3)
    end
  end

  -- An entry of a wait queue is a hint, as a queue entry is: the index of throttled tasks decides whether it may be taken.
  local function leave_throttled(id, lane, wait_queue)
    local queue = queue_of_lane[lane]
    redis.call('ZREM', keys.wait_queue(wait_queue), id)
    if redis.call('ZREM', keys.throttled(queue), id) == 0 then return false end
    redis.call('ZREM', keys.rq_deferred(queue), id)
    redis.call('HDEL', keys.rq_job(id), 'wait_queue')
    return true
  end

  -- Takes the next task out of a wait queue. One that another limit holds back moves to that one's wait queue.
  local function take_throttled(first, lane)
    local id, wait_queue = first.id, wait_queue_name(lane, first.group, first.tenant)
    if not leave_throttled(id, lane, wait_queue) then return end
    local t, enqueued = startable(id, lane, first.score)
    if not t then return end
    local names = limit_names(t[TYPE], t[LIMIT_KEY])
    local limit = limit_in_the_way(names)
    if limit then
      looked_at[limit] = true
      return enter_wait_queue(id, lane, limit, tenant_of(id, t), enqueued, t[SCORE])
    end
    spend(take_part(id, names))
    begin(id, queue_of_lane[lane], t, enqueued)
  end

  -- The tenant whose last turn is longest ago goes first; of two tasks of one tenant, the older.
  local function goes_before(one, other, lane)
    if one.tenant ~= other.tenant then
      local turn = math.max(one.turn, last_turn(lane, one.tenant))
      local other_turn = math.max(other.turn, last_turn(lane, other.tenant))
      if turn ~= other_turn then return turn < other_turn end
    end
    return tonumber(one.score) < tonumber(other.score)
  end

  -- A turn is taken by a start. A task that is only moved to another wait queue leaves it to the next one of its tenant,
  -- until half of the claim is spent: the others start with the rest.
  function take_by_turn(lane, n)
    local groups, firsts, enough = {'list', '', unpack(due)}, {}, #tasks + n
    while #tasks < enough and room > 0 and patience > 0 do
      local best, from
      for at, group in ipairs(groups) do
        if at == 1 or (at == 2 and has_tenants[lane]) or (at > 2 and lets_start(limit_of(group))) then
          if firsts[group] == nil then
            firsts[group] = (at == 1 and first_in_list(lane) or at > 1 and first_waiting(lane, group)) or false
          end
          local first = firsts[group]
          if first and (not best or goes_before(first, best, lane)) then best, from = first, group end
        end
      end
      if not best then return end
      spend(COST.by_turn)
      firsts[from] = nil
      local before = #tasks
      if best.group then
        take_throttled(best, lane)
      else
        if not range then redis.call('LPOP', keys.rq_queue(lane)) end
        start(lane, {best.id}, {best.score}, 1)
        -- Elsewhere in the list the entry stays, and leads nowhere.
        if range and taken[best.id] and redis.call('LINDEX', keys.rq_queue(lane), 0) == best.id then
          redis.call('LPOP', keys.rq_queue(lane))
        end
      end
      if #tasks > before or patience < COST.all / 2 then turn_taken(lane, best) end
      if #tasks == before then firsts[''] = nil end -- a task of the list may be there now
      for group, first in pairs(firsts) do
        if first and first.others and first.tenant == best.tenant then firsts[group] = nil end
      end
    end
  end
end

local take
do
  local function has_wait_queues(lane)
    if has_tenants[lane] or range then return true end
    local wait_queues = {}
    for at, group in ipairs(due) do wait_queues[at] = tenants_key(lane, group) end
    return #wait_queues > 0 and redis.call('EXISTS', unpack(wait_queues)) > 0
  end

  function take(lane, n)
    local before = #tasks
    n = math.min(n, lane.most, want - before)
    if n <= 0 then return end
    local by_turn = limited and has_wait_queues(lane.name)
    if not by_turn then take_from_list(lane.name, n) end
    if by_turn or has_tenants[lane.name] then take_by_turn(lane.name, n - (#tasks - before)) end
    lane.most = lane.most - (#tasks - before)
  end
end

-- One command where there is nothing: an idle worker claims every few seconds.
if was_idle and #lanes > 0 then
  local lists = {}
  for at, lane in ipairs(lanes) do lists[at] = keys.rq_queue(lane.name) end
  if redis.call('EXISTS', unpack(lists)) == 0 then
    for _, lane in ipairs(lanes) do empty[lane.name] = true end
  end
end

for _, lane in ipairs(lanes) do take(lane, lane.quota) end
for _, lane in ipairs(lanes) do take(lane, want) end

-- Fills the claim from queues that it does not name: few commands where these are empty, however many there are.
if patterns and #tasks < want and room > 0 and patience > 0 then
  local of_key, lists = {}, {}
  for _, queue in ipairs(redis.call('ZRANGE', keys.QUEUES, 0, -1)) do
    local name = queue .. kind
    if not queue_of_lane[name] then
      lists[#lists + 1] = keys.rq_queue(name)
      of_key[lists[#lists]] = {name = name, quota = 0, most = math.huge}
    end
  end
  for _, key in ipairs(existing_keys(lists)) do
    local lane = of_key[key]
    local queue = queue_of(lane.name)
    spend(3)
    if matches_one(patterns, queue) and not (any_paused and redis.call('HEXISTS', keys.PAUSED, queue) == 1) then
      queue_of_lane[lane.name] = queue
      lanes[#lanes + 1] = lane
      take(lane, want)
    end
  end
end

keep_leases()
if store_turn then store_turn() end
if #tasks > 0 then
  local ids = {}
  for i, task in ipairs(tasks) do ids[i] = task[1] end
  redis.call('SET', keys.claim(claimant), token .. ' ' .. table.concat(ids, ' '), 'EX', 60)
end
local more = patience <= 0 and not (range and #tasks == 0) or (deferred and deferred > 0 and redis.call('EXISTS', keys.DEFERRED_WORK) == 1)

local again_in, tasks_wait = -1, false
if limited then
  -- Returns whether tasks wait for a limit in lanes that this claim does not name: true where it has looked at as many keys
  -- as it may, and one of the next claims has to look again.
  local lookups = 3000
  local function waited_for_elsewhere(name)
    if lookups <= 0 then return true end
    local wait_queues = {}
    for at, lane in ipairs(all_lanes()) do wait_queues[at] = tenants_key(lane, name) end
    lookups = lookups - #wait_queues
    return #existing_keys(wait_queues) > 0
  end

  -- Sets when to check the wait queues of each examined limit again; returns whether one of ours is due at once.
  local function settle_limit(name)
    local limit, here = limit_of(name), waited_for_here(name)
    if not here and not waited_for_elsewhere(name) then
      redis.call('ZREM', keys.LIMITS_DUE, name)
      return false
    end
    redis.call('ZADD', keys.LIMITS_DUE, due_of(limit), name)
    return here and lets_start(limit)
  end

  -- Skipped limits are examined last the next time; the wait queues of some may be removed altogether.
  local function settle_elsewhere()
    local latest = {}
    for at, name in ipairs(due.elsewhere) do
      if at <= due.most then settle_limit(name)
      else
        latest[#latest + 1] = NOW
        latest[#latest + 1] = name
      end
    end
    if #latest > 0 then redis.call('ZADD', keys.LIMITS_DUE, unpack(latest)) end
  end

  for _, name in ipairs(due) do looked_at[name] = true end
  for name in pairs(looked_at) do tasks_wait = settle_limit(name) or tasks_wait end
  settle_elsewhere()
  local next_due = redis.call('ZRANGEBYSCORE', keys.LIMITS_DUE, '(' .. NOW, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if next_due[2] then again_in = tonumber(next_due[2]) - now end
  for _, lane in ipairs(lanes) do tasks_wait = tasks_wait or has_tenants[lane.name] end
  more = more or (#due == due.most and #tasks > 0)
end

-- The rest is for the next worker, and for this one unless it may take no more of that lane.
for _, lane in ipairs(lanes) do
  local full = lane.most == 0
  if (full or #tasks == want) and (tasks_wait or redis.call('EXISTS', keys.rq_queue(lane.name)) == 1) then
    notify_workers(1, lane.name)
    if not full then
      more = true
      break
    end
  end
end
if next_token and #tasks < want and not more then
  local order = {worker, next_token, ARGV[4], num(want - #tasks), num(room)}
  for _, lane in ipairs(asked) do
    if lane.most > 0 then
      order[#order + 1] = lane.name
      order[#order + 1] = lane.quota
    elseif patterns then
      order[#order + 1] = '!' .. lane.name
      order[#order + 1] = 0
    end
  end
  if patterns then
    order[#order + 1] = '*' .. kind
    order[#order + 1] = patterns
  end
  redis.call('SET', keys.parked_claim(claimant), cjson.encode(order), 'EX', 60)
  redis.call('ZADD', keys.PARKED_CLAIMS, NOW, claimant)
end
return {NOW, unreadable, more and 1 or 0, tasks, again_in}
