-- @include _prelude _webhooks _relations _limits _types _worker_queues _task_fields
-- Takes pending tasks for one worker and gives it a lease on each.
-- ARGV: now, worker, token (new for each claim), lease in microseconds, how many at most (500 are never exceeded: Lua's
--   stack and the latency of other clients are bounded), how many bytes of data at most;
--   the kind of its lanes (see `_lanes.lua`): "+" or "", as a worker has one claim for each kind;
--   token of the worker's next claim, which leaves a parked claim when too few tasks were found: `submit_one.lua` may answer
--   that claim before it is sent ("": leaves none);
--   patterns, separated by spaces: other registered queues that match one fill the rest of the claim ("": none);
--   lowest and highest score of the tasks that it takes ("": no bound); the score of a task without one is when it was
--   enqueued; then three per lane: its name, its quota, how many tasks it may give at most ("": no bound).
--   First every lane gives up to its quota, then the rest is filled in order.
-- Returns {now, ids of corrupt records, 1 when it is worth claiming again at once, the tasks, in how many microseconds a
--   rate allows the next start (-1: no task waits for that), the names of the tasks' fields where there are tasks}.
-- Repeated with the same token it gives the same tasks, as far as the worker still holds them.
local worker, token, want, room = ARGV[2], ARGV[3], math.min(tonumber(ARGV[5]), 500), tonumber(ARGV[6])
local kind, next_token, patterns, lowest, highest = unpack(ARGV, 7, 11)
local FIRST_LANE = 12
-- Such a claim goes by turns, and takes from wait queues the places between these.
local range = lowest .. highest ~= ''
limited = limited or range
local NAMES = {'state', 'description', 'data', 'attempt', 'failures', 'crashes', 'losses', 'time_limit', 'retry', 'meta',
  'expires_at', 'origin', 'token', 'unique', 'relations', 'suspicions', 'refused', 'pinned', 'limit_key', 'fair_key', 'score'}
-- Their places: a table by names would make a claim of ten tasks 3 % slower.
local STATE, TYPE, DATA, ATTEMPT, EXPIRES_AT, ORIGIN, TOKEN, UNIQUE, RELATIONS = 1, 2, 3, 4, 11, 12, 13, 14, 15
local SUSPICIONS, REFUSED, PINNED, LIMIT_KEY, FAIR_KEY, SCORE = 16, 17, 18, 19, 20, 21
-- Without wait queues these are not needed. They stay the last ones: `unpack` ends at the first nil.
if not limited then NAMES[SCORE], NAMES[FAIR_KEY], NAMES[LIMIT_KEY] = nil, nil, nil end
local tasks, unreadable, taken = {}, {}, {}

-- About how many commands this claim may still send. When they are used up, it returns the tasks so far and a request to be
-- repeated: some 3 ms of Redis. These are the maximum costs of one task of a kind; `test_command_bounds.py` counts.
local COST = {all = 2000, plain = 2, related = 10, throttled = 10, by_turn = 12, ended = 25, deferred = 30}
local patience = COST.all
local function spend(commands) patience = patience - commands end

write_even_when_full()

-- Returns these fields of a task; nil when the key is not a hash.
local function waiting_task(id)
  local t = redis.pcall('HMGET', keys.rq_job(id), unpack(NAMES))
  if not t.err then return t end
end

-- @insert _claim_describe

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
    return {NOW, unreadable, 1, tasks, -1, TASK_FIELDS}
  end
end

-- @insert _claim_begin

local looked_at, queue_of_lane = {}, {}

-- @insert _claim_startable
-- @insert _claim_list

-- Deferred work of ended tasks is done before a new task starts: about a millisecond's worth.
local deferred, any_paused = false, false
if redis.call('EXISTS', keys.DEFERRED_WORK, keys.PAUSED) > 0 then
  any_paused = redis.call('EXISTS', keys.PAUSED) == 1
  deferred = redis.call('EXISTS', keys.DEFERRED_WORK) == 1 and run_deferred_work(40)
end
if deferred then spend(deferred * COST.deferred) end

-- The requested lanes, and the ones that may have tasks.
local asked, lanes = {}, {}
for at = FIRST_LANE, #ARGV, 3 do
  local lane = {name = ARGV[at], quota = tonumber(ARGV[at + 1]), most = tonumber(ARGV[at + 2]) or math.huge}
  asked[#asked + 1] = lane
  queue_of_lane[lane.name] = queue_of(lane.name)
  if lane.most > 0 and not (any_paused and redis.call('HEXISTS', keys.PAUSED, queue_of_lane[lane.name]) == 1) then
    lanes[#lanes + 1] = lane
  end
end

-- @insert _claim_due
-- @insert _claim_fairness

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

-- @insert _claim_patterns

keep_leases()
if store_turn then store_turn() end
if #tasks > 0 then
  local ids = {}
  for i, task in ipairs(tasks) do ids[i] = task[1] end
  redis.call('SET', keys.claim(claimant), token .. ' ' .. table.concat(ids, ' '), 'EX', 60)
end
local more = patience <= 0 and not (range and #tasks == 0) or (deferred and deferred > 0 and redis.call('EXISTS', keys.DEFERRED_WORK) == 1)

-- @insert _claim_settle

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
if next_token ~= '' and #tasks < want and not more then
  -- A lane at its QUEUE_EXECUTORS bound is false: a pattern would dispatch one more task of its queue.
  local takes = {}
  for _, lane in ipairs(asked) do takes[lane.name] = lane.most > 0 end
  local parked = {worker = worker, token = next_token, lease = ARGV[4], room = num(room), takes = takes, kind = kind,
    patterns = patterns}
  redis.call('SET', keys.parked_claim(claimant), cjson.encode(parked), 'EX', 60)
  redis.call('ZADD', keys.PARKED_CLAIMS, NOW, claimant)
end
return {NOW, unreadable, more and 1 or 0, tasks, again_in, #tasks > 0 and TASK_FIELDS or nil}
