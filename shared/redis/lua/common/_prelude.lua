-- Included by every script: time, key names and the small steps that scripts share.
-- The first argument of every script is the instant to work with in microseconds, or "" to ask this server. In
-- production no client's clock decides anything; tests pass the instant instead of waiting.
-- Numbers go to Redis as text made by num(): Lua's own conversion keeps 14 digits, and a microsecond has 16.

-- A step of one version must not touch data of another; no number means that nothing was written yet. The number is
-- followed by `draining` in a partition that takes no new tasks.
local FORMAT = '6'
local stored_format = redis.call('GET', keys.FORMAT) or FORMAT
local is_draining = stored_format == FORMAT .. ' draining'
if stored_format ~= FORMAT and not is_draining then
  return redis.error_reply('FORMAT the data in Redis is of format ' .. stored_format .. ' and this version writes ' ..
    FORMAT .. ': another version has taken over')
end

local function read_clock(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local now = read_clock(ARGV[1])

local function num(x) return string.format('%.0f', x) end

-- A stored value may be corrupt: returns nil for a value that is not a usable number (also nan, inf, 1e300).
local function number_of(text)
  local x = tonumber(text)
  if x and x > -9e15 and x < 9e15 then return x end
end

-- Returns an instant in RQ's format: 2026-11-21T08:45:00.123456Z. Days to date after Howard Hinnant's civil_from_days.
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

-- Returns the microseconds of such an instant, or nil; days from date after Hinnant's days_from_civil.
local function microseconds(stamp_text)
  local y, mo, d, h, mi, s, us = string.match(stamp_text or '', '^(%d%d%d%d)-(%d%d)-(%d%d)T(%d%d):(%d%d):(%d%d)%.(%d%d%d%d%d%d)Z$')
  if not y then return nil end
  y, mo = tonumber(y), tonumber(mo)
  if mo <= 2 then y = y - 1 end
  local era = math.floor(y / 400)
  local yoe = y - era * 400
  local doy = math.floor((153 * (mo > 2 and mo - 3 or mo + 9) + 2) / 5) + tonumber(d) - 1
  local days = era * 146097 + yoe * 365 + math.floor(yoe / 4) - math.floor(yoe / 100) + doy - 719468
  return ((days * 24 + h) * 60 + mi) * 60000000 + s * 1000000 + tonumber(us)
end

local NOW = num(now)


-- A queue has two lanes, each with a list of queue entries, wake-ups and wait queues of its own: `QUEUE` for tasks that
-- run one at a time in a process, `QUEUE+` for those of concurrent types. A backlog of the one kind must not keep the
-- executors of the other kind idle. All other structures are by queue.

-- Returns the lane of a key in `keys.RQ_QUEUES`.
local function lane_of_key(key) return string.sub(key, #keys.rq_queue('') + 1) end

local function queue_of(lane) return (string.gsub(lane, '%+$', '')) end

-- Returns the lane for tasks of this type.
local function lane_for(queue, task_type)
  return redis.call('SISMEMBER', keys.CONCURRENT_TYPES, task_type) == 1 and queue .. '+' or queue
end

-- Returns those of these keys that exist, found by halving: one command when there are none.
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
-- direct dispatch learns of the lane by that; a claim would cross it.
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

-- Returns the index of our own for tasks of this state.
local function index_key(state, queue)
  if state == 'pending' then return keys.pending(queue) end
  if state == 'scheduled' then return keys.scheduled(queue) end
  if state == 'retrying' then return keys.retrying(queue) end
  if state == 'running' then return keys.LEASES end
  if state == 'blocked' then return keys.BLOCKED end
  return keys.ended(state)
end

-- RQ's structures that mirror it; pending is a list and running has a member of its own, so neither is here.
local RQ_REGISTRY = {
  scheduled = keys.rq_scheduled(''), retrying = keys.rq_scheduled(''), blocked = keys.rq_deferred(''),
  completed = keys.rq_finished(''), failed = keys.rq_failed(''), cancelled = keys.rq_canceled(''),
  expired = keys.rq_canceled(''),
}
local RQ_STATUS = {
  scheduled = 'scheduled', retrying = 'scheduled', blocked = 'deferred', pending = 'queued', running = 'started',
  completed = 'finished', failed = 'failed', cancelled = 'canceled', expired = 'canceled',
}

local function by_name(values, names)
  for at = 1, #names do names[names[at]] = values[at] or nil end
  return names
end

-- Returns fields of a hash by their names; those that it lacks are nil.
local function hash(key, ...) return by_name(redis.call('HMGET', key, ...), {...}) end

-- A housekeeping step names its lock and carries the token ("" for neither). It is checked in the step that changes
-- data: a process that was suspended past the end of a lock cannot know that another one has taken it since.
local function lock_ended(lock, token)
  if not token or token == '' then return false end
  local v = hash(keys.lock(lock), 'token', 'until')
  local ended = v.token ~= token or (number_of(v['until']) or 0) <= now
  -- A full Redis may refuse the note; the step is refused all the same. A lock that a person took was not lost.
  if ended and string.sub(lock, 1, 5) ~= 'task.' and not redis.pcall('ZSCORE', keys.LOST_LOCKS, token) then
    redis.pcall('ZADD', keys.LOST_LOCKS, NOW, lock)
  end
  return ended
end
local LOCK_ENDED = {err = 'OUTLIVED the lock of this step has ended, or another process has taken it'}

-- Returns fields of a task's record in this order; nothing when the key is not a hash. For hot paths.
local function record_values(id, ...)
  local values = redis.pcall('HMGET', keys.rq_job(id), ...)
  if not values.err then return unpack(values) end
end

-- Returns fields of a task's record by their names; nil when the key is not a hash.
local function record(id, ...)
  local values = redis.pcall('HMGET', keys.rq_job(id), ...)
  if not values.err then return by_name(values, {...}) end
end

-- A task that stored steps pin to a version of its type has "=" and that version in `refused`, in place of versions that
-- refused its data.
local function is_pinned(refused) return string.sub(refused or '', 1, 1) == '=' end

local function pin(id, refused, version)
  if version ~= '' and refused ~= '=' .. version then redis.call('HSET', keys.rq_job(id), 'refused', '=' .. version) end
end

-- Returns the answer to the first request with a key; where it is corrupt, the state of the task that it stored.
local function stored_answer(id, text)
  local readable, answer = pcall(cjson.decode, text)
  if readable and (type(answer) == 'string' or (type(answer) == 'table' and answer[3])) then return answer end
  local t = record(id, 'state')
  return t and t.state or 'pending'
end

-- Returns the failure fingerprint of a dead letter: type, error class, place in the code, and message without numbers
-- and ids. `place` and `pattern` come with the error (shared/domain/failure_fingerprint.py).
local function fingerprint_of(id)
  local t = record(id, 'description', 'error')
  local ok, error = pcall(cjson.decode, t and t.error or '')
  if not ok or type(error) ~= 'table' then return 'unreadable' end
  local function word(x) return type(x) == 'string' and x or '' end
  return string.sub(redis.sha1hex((t.description or '') .. '\n' .. word(error.type) .. '\n' .. word(error.place) .. '\n' ..
    word(error.pattern)), 1, 16)
end

local function count_cause(cause)
  local key = keys.failure_group(cause)
  local left = redis.call('ZCARD', key)
  if left > 0 then redis.call('ZADD', keys.FAILURE_GROUPS, left, cause)
  else redis.call('ZREM', keys.FAILURE_GROUPS, cause) end
end

local function leave_failure_group(id)
  local cause = redis.call('HGET', keys.FAILURE_GROUP_OF, id)
  if not cause then return end
  redis.call('HDEL', keys.FAILURE_GROUP_OF, id)
  redis.call('ZREM', keys.failure_group(cause), id)
  count_cause(cause)
end

local function join_failure_group(id)
  leave_failure_group(id)
  local cause = fingerprint_of(id)
  redis.call('HSET', keys.FAILURE_GROUP_OF, id, cause)
  redis.call('ZADD', keys.failure_group(cause), NOW, id)
  count_cause(cause)
  redis.call('SET', keys.first_seen(cause), NOW, 'NX')
  redis.call('EXPIRE', keys.first_seen(cause), 2592000) -- 30 days after the last dead letter of a group
end

local ENDED = {completed = true, failed = true, cancelled = true, expired = true}

-- A unique key is held by one task until that task starts or ends, or for a time, whatever happens to the task. The
-- first two are a hash of keys to ids, freed in the step that starts or ends the task; an entry counts only if the
-- record agrees. The third is a key of Redis' own, which expires.

-- Returns the holder of a unique key, and the state of that task ("" when its record is removed).
local function unique_holder(key)
  local id = redis.call('HGET', keys.UNIQUE, key)
  if id then
    local t = record(id, 'state', 'unique')
    if t and t.state and t.unique == key and not ENDED[t.state] then return id, t.state end
  end
  id = redis.call('GET', keys.unique_for(key))
  local t = id and record(id, 'state')
  return id, t and t.state or ''
end

-- Raises PLACEMENT in a draining partition, which stores nothing that can be stored elsewhere.
local function demand_active()
  if is_draining then error({err = 'PLACEMENT'}) end
end

local function hold_unique(id, key, until_)
  if tonumber(until_) then redis.call('SET', keys.unique_for(key), id, 'PX', until_)
  else redis.call('HSET', keys.UNIQUE, key, id) end
end

local function release_unique(id, key)
  if key and redis.call('HGET', keys.UNIQUE, key) == id then redis.call('HDEL', keys.UNIQUE, key) end
end

-- Restores the unique key of a task that waits again, unless another task has taken it since.
local function hold_unique_again(id, scopes)
  local t = record(id, 'unique', 'unique_until')
  if t and t.unique and scopes[t.unique_until] then redis.call('HSETNX', keys.UNIQUE, t.unique, id) end
end

-- Removes a throttled task from its wait queue (see `_limits.lua`).
local function leave_wait_queue(id, queue)
  if redis.call('ZREM', keys.throttled(queue), id) == 0 then return end
  local t = record(id, 'wait_queue')
  if t and t.wait_queue then
    redis.call('ZREM', keys.wait_queue(t.wait_queue), id)
    redis.call('HDEL', keys.rq_job(id), 'wait_queue')
  end
  redis.call('ZREM', keys.rq_deferred(queue), id)
end

-- Lists a scheduled task among those that wait for a signal, by the end of that wait; without one removes it from them.
local function list_wait(id, due)
  local t = record(id, 'awaits')
  local signal = string.match(t and t.awaits or '', '^signal (.*)$')
  for _, key in ipairs(signal and {keys.AWAITING, keys.awaiting(signal)} or {}) do
    if due then redis.call('ZADD', key, num(due), id) else redis.call('ZREM', key, id) end
  end
end

-- Removes a task from the structures of its state.
local function leave(id, state, queue, token)
  local there = redis.call('ZREM', index_key(state, queue), id)
  if state == 'pending' and there == 0 then leave_wait_queue(id, queue) end
  if state == 'running' then
    redis.call('ZREM', keys.rq_started(queue), id .. ':' .. token)
  elseif RQ_REGISTRY[state] then
    redis.call('ZREM', RQ_REGISTRY[state] .. queue, id)
  end
  if state == 'failed' then leave_failure_group(id) end
  if state == 'scheduled' then list_wait(id) end
end

-- --- history: ends of tasks that are still to be stored there ---
-- `keys.HISTORY` exists while a housekeeper stores history. A member of `keys.UNARCHIVED` is the id of a task whose record
-- still shows that end, or ID|SCORE, which names a kept copy: the record was removed since, or the task requeued.

-- One table, as Lua has room for 200 local names in a script.
local history = {
  -- Registers ends (alternating times and ids) for the history. Over the bound, the oldest are given up, and counted.
  note = function(ends)
    local most = number_of(redis.call('HGET', keys.HISTORY, 'most'))
    if not most then return end
    redis.call('ZADD', keys.UNARCHIVED, unpack(ends))
    local over = math.min(redis.call('ZCARD', keys.UNARCHIVED) - most, 1000)
    if over <= 0 then return end
    for at, member in ipairs(redis.call('ZPOPMIN', keys.UNARCHIVED, over)) do
      if at % 2 == 1 then redis.call('UNLINK', keys.kept_end(member)) end
    end
    redis.call('HINCRBY', keys.HISTORY, 'lost', over)
  end,
  -- Keeps the record of an end that is not stored yet, before it is changed ('COPY') or removed ('RENAME').
  keep = function(id, command, result)
    local score = redis.call('ZSCORE', keys.UNARCHIVED, id)
    if not score then return end
    local member = id .. '|' .. score
    redis.call('ZREM', keys.UNARCHIVED, id)
    local kept = redis.pcall(command, keys.rq_job(id), keys.kept_end(member))
    if type(kept) == 'table' and kept.err then return end
    redis.call('ZADD', keys.UNARCHIVED, score, member)
    if result then redis.pcall('HSET', keys.kept_end(member), 'result', result) end
  end,
}

-- Adds a task to one of RQ's registries.
local function mirror(registry, queue, score, id)
  if not is_rq_job(id) then redis.call('ZADD', registry .. queue, score, id) end
end

-- Adds a task to the structures of a final state. RQ's score is +inf: only our retention removes a record.
local function enter_ended(id, state, queue)
  redis.call('ZADD', keys.ended(state), NOW, id)
  mirror(RQ_REGISTRY[state], queue, '+inf', id)
  history.note({NOW, id})
  local t = record(id, 'unique', 'step:rq-job') or {}
  release_unique(id, t.unique)
  if state == 'failed' then join_failure_group(id) end
  -- A job of RQ that waits is cancelled with its task of the type `rq`, as RQ does it; the next try makes another job.
  local step = state == 'cancelled' and t['step:rq-job'] or ''
  local job_id = string.match(step, '"job":"(rq%-[%w_-]+)","over":false')
  local job = job_id and record(job_id, 'status', 'origin')
  -- A Redis user that lacks the right to LREM leaves the job to run.
  if job and job.status == 'queued' and job.origin
      and type(redis.pcall('LREM', keys.rq_queue(job.origin), 1, job_id)) == 'number' then
    redis.call('HSET', keys.rq_job(job_id), 'status', 'canceled')
    redis.call('ZADD', keys.rq_canceled(job.origin), '+inf', job_id)
    redis.call('HSET', keys.rq_job(id), 'step:rq-job', (string.gsub(step, '"over":false', '"over":true', 1)))
  end
end

-- Adds a task to the structures of a state with a due time.
local function enter_due(id, state, queue, due)
  redis.call('ZADD', index_key(state, queue), num(due), id)
  mirror(RQ_REGISTRY[state], queue, num(math.floor(due / 1000000)), id)
  redis.call('ZADD', keys.QUEUES, 'NX', NOW, queue)
  if state == 'scheduled' then list_wait(id, due) end
end

-- Registers the expiry of a task for the expire script.
local function watch_deadline(id, expires_at)
  if number_of(expires_at) then redis.call('ZADD', keys.DEADLINES, expires_at, id) end
end

-- Wakes idle workers of a lane; without one any worker, for tasks that all can run. The bound keeps a burst from leaving
-- thousands of stale wake-ups; a woken worker that finds more than it can take wakes the next one.
local function notify_workers(tasks, lane)
  local wakeup_list = lane and keys.wakeup(lane) or keys.WAKEUP
  local wakeups = math.min(tasks, 64 - redis.call('LLEN', wakeup_list))
  for _ = 1, wakeups do redis.call('RPUSH', wakeup_list, lane or '') end
end

-- --- transitions: all changes of a task's state but the first, which submit.lua writes ---

-- The legal ones, as `TRANSITIONS` of `shared/domain/task.py` has them. A new record has its first state without one.
local function check_transition(id, from, to)
  local LEGAL = [[
    scheduled>pending scheduled>blocked scheduled>cancelled scheduled>expired
    blocked>pending blocked>scheduled blocked>cancelled blocked>expired
    pending>running pending>scheduled pending>cancelled pending>expired pending>failed
    running>completed running>retrying running>failed running>cancelled running>pending running>scheduled running>blocked
    retrying>pending retrying>blocked retrying>cancelled retrying>expired
    failed>pending failed>blocked cancelled>pending cancelled>scheduled cancelled>blocked
  ]]
  if not string.find(LEGAL, from .. '>' .. to, 1, true) then
    error('task ' .. id .. ' cannot change from ' .. from .. ' to ' .. to, 0)
  end
end

-- Writes a task's state, and these other fields. For steps that write the indexes of many tasks together; others call
-- `transition`.
local function set_state(id, from, to, ...)
  check_transition(id, from, to)
  redis.call('HSET', keys.rq_job(id), 'state', to, 'status', RQ_STATUS[to], ...)
end

-- Adds a pending task to the end of its queue; in front with the place that it had when it was claimed. `lane` is that
-- of its type, where it is known.
local entered = {}
local function enter_queue(id, queue, place, lane)
  lane = lane or lane_for(queue, redis.call('HGET', keys.rq_job(id), 'description') or '')
  local before = entered[queue] or 0
  entered[queue] = before + 1
  redis.call(place and 'LPUSH' or 'RPUSH', keys.rq_queue(lane), id)
  list_lane(lane, id)
  redis.call('ZADD', keys.pending(queue), place or before == 0 and NOW or num(now + before), id)
  if before < 64 then notify_workers(1, lane) end
end

local function tenants_key(lane, group) return keys.wait_queues(lane .. '|' .. group) end
local function wait_queue_name(lane, group, tenant) return lane .. '|' .. group .. '|' .. tenant end

-- Returns the place of a score in a wait queue, beside the times of tasks without one: a score is in milliseconds, a time in
-- microseconds. Above 2^52 the places of neighbours would be the same double; from 2^40 on they are whole, as times are.
-- A corrupt score has none: the task waits as one without.
local function place_of(score)
  local x = tonumber(score)
  if not (x and x >= 0 and x <= 2^53) then return nil end
  return string.format(x < 2^40 and '%.17g' or '%.0f', x <= 2^52 and x * 1000 or 2^52 * 1000 + (x - 2^52) * 1024)
end

-- Moves a pending task that was enqueued at a time into a wait queue of a lane (see `_limits.lua`), where its score is its
-- place, if it has one. A new tenant comes after the waiting ones; tasks without one have the turns of the list.
local served = 0
local function enter_wait_queue(id, lane, group, tenant, enqueued, score)
  local wait_queue, queue = wait_queue_name(lane, group, tenant), queue_of(lane)
  redis.call('ZADD', keys.throttled(queue), enqueued, id)
  redis.call('ZADD', keys.wait_queue(wait_queue), place_of(score) or enqueued, id)
  served = served + 1
  redis.call('ZADD', tenants_key(lane, group), 'NX', group .. tenant == '' and 0 or num(now + served), tenant)
  mirror(RQ_REGISTRY.blocked, queue, '+inf', id)
  redis.call('HSET', keys.rq_job(id), 'wait_queue', wait_queue, 'status', 'deferred')
  list_lane(lane, id)
  if group == '' then redis.call('SADD', keys.FAIR, lane)
  else redis.call('ZADD', keys.LIMITS_DUE, 'NX', NOW, group) end
end

-- Adds a task to the structures of a state. `at` is its due time, or its place (see `enter_queue`). A pending one with a
-- score waits in the order of scores, with those of its tenant.
local function enter(id, state, queue, at)
  if state == 'pending' then
    local t = record(id, 'description', 'score', 'fair_key') or {}
    local lane = lane_for(queue, t.description or '')
    if not place_of(t.score) then return enter_queue(id, queue, at, lane) end
    enter_wait_queue(id, lane, '', t.fair_key or '', at or NOW, t.score)
    notify_workers(1, lane)
  elseif state == 'scheduled' or state == 'retrying' then enter_due(id, state, queue, at)
  elseif state == 'blocked' then
    redis.call('ZADD', keys.BLOCKED, NOW, id)
    redis.call('ZADD', keys.rq_deferred(queue), '+inf', id)
  else enter_ended(id, state, queue) end
end

-- Moves a task from one state to another: its indexes, RQ's registries, and its record with these other fields. An
-- illegal transition is an error, before anything is written. Callers that end an attempt remove its lease, which has a token.
local function transition(id, from, to, queue, at, ...)
  check_transition(id, from, to)
  if from ~= 'running' then leave(id, from, queue, '') end
  if ENDED[to] then
    if from ~= 'running' then redis.call('ZREM', keys.DEADLINES, id) end
    set_state(id, from, to, 'ended_at', iso(now), ...)
  elseif to == 'pending' and not at then
    set_state(id, from, to, 'enqueued_at', iso(now), ...)
  else
    set_state(id, from, to, ...)
  end
  enter(id, to, queue, at)
end

-- A full Redis (maxmemory) refuses a script's first write when that could grow memory, and lets it finish once it has
-- written. Steps that end or free something, or that operators need then, begin with a write that is never refused, so
-- that finished work can still be recorded; new data (tasks, schedules) is refused by a full Redis.
local function write_even_when_full() redis.call('DEL', keys.NOTHING) end

-- Adds to the counts of this minute.
local function count(what, n)
  if n == 0 then return end
  local key = keys.throughput(num(math.floor(now / 60000000)))
  if redis.call('HINCRBY', key, what, n) == n then redis.call('EXPIRE', key, 7200) end
end

-- Adds to a number of a record; a corrupt one counts as 0.
local function bump(id, field, present, by)
  local value = (number_of(present) or 0) + by
  redis.call('HSET', keys.rq_job(id), field, value)
  return value
end

-- Stores one attempt's record; the oldest is removed when there are more than 50.
local function remember(id, attempt, about)
  redis.call('HSET', keys.rq_job(id), 'attempt:' .. attempt, about)
  if attempt > 50 then redis.call('HDEL', keys.rq_job(id), 'attempt:' .. num(attempt - 50)) end
end

-- Returns a record's metadata with the span that requeued the task, and after which attempt; "" for no span. It is
-- prepended to the rest, which stays byte for byte: decoding and encoding again would change it.
local function replayed(meta, cause, attempt)
  local rest = string.gsub(meta or '{}', '^{"replay":"[^"]*","replay_after":%d+,?', '{')
  if cause == '' or string.sub(rest, 1, 1) ~= '{' then return rest end
  local head = '{"replay":"' .. cause .. '","replay_after":' .. num(number_of(attempt) or 0)
  return head .. (rest == '{}' and '}' or ',' .. string.sub(rest, 2))
end

local function note_replay(id, meta, cause, attempt)
  if meta or cause ~= '' then redis.call('HSET', keys.rq_job(id), 'meta', replayed(meta, cause, attempt)) end
end

-- Returns a list that a record stores in JSON; empty when corrupt, or longer than any that the API takes, so that a
-- forged one cannot keep Redis busy. `most` is in bytes.
local function list_of(text, most)
  if not text or #text > most then return {} end
  local readable, list = pcall(cjson.decode, text)
  return readable and type(list) == 'table' and list or {}
end

local function tags_of(text)
  local tags = {}
  for _, tag in ipairs(list_of(text, 16384)) do
    if type(tag) == 'string' and #tags < 16 then tags[#tags + 1] = tag end
  end
  return tags
end

-- RQ programs may enqueue into a queue of ours. Such a foreign job has a record without a state of ours.
local function is_foreign(id)
  local size = redis.pcall('HLEN', keys.rq_job(id))
  return type(size) == 'number' and size > 0 and not RQ_STATUS[redis.call('HGET', keys.rq_job(id), 'state') or '']
end

-- Returns whether a parked job is still to be run by RQ.
local function waits_for_rq(id)
  local status = is_foreign(id) and (redis.call('HGET', keys.rq_job(id), 'status') or 'queued')
  return status == 'queued' or status == 'created'
end

-- Parks the foreign jobs among queue entries that lead to no pending task, before these are removed. Their records
-- stay unchanged. Entries of our own are hints; those without a record RQ drops too. Returns how many commands that took.
local function park_foreign(queue, ids)
  if #ids == 0 then return 0 end
  local key, parked, looked = keys.foreign(queue), {}, 0
  local listed, last = redis.call('ZMSCORE', keys.TASKS, unpack(ids)), redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  local first = math.max(now, (number_of(last) or 0) + 1)
  for at, id in ipairs(ids) do
    if not listed[at] then
      looked = looked + 1
      if is_foreign(id) then
        parked[#parked + 1] = num(first + #parked / 2)
        parked[#parked + 1] = id
      end
    end
  end
  if #parked > 0 then redis.call('ZADD', key, 'NX', unpack(parked)) end
  return 3 + 2 * looked
end

-- Returns the handler's result from RQ's stream: base64 of JSON; nil when there is none. A stock worker that took an
-- entry of ours may have added a failure after it.
local function result_of(id)
  local entries = redis.pcall('XREVRANGE', keys.rq_results(id), '+', '-', 'COUNT', 10)
  for _, entry in ipairs(entries.err and {} or entries) do
    for at = 1, #entry[2], 2 do
      if entry[2][at] == 'return_value' then return entry[2][at + 1] end
    end
  end
end

-- Removes every trace of a task from every structure that could hold it.
local function remove(id, state, queue, token)
  local t = record(id, 'description', 'tags', 'unique')
  leave(id, state, queue, token)
  redis.call('ZREM', keys.TASKS, id)
  redis.call('ZREM', keys.DEADLINES, id)
  if t then
    if t.description then redis.call('ZREM', keys.tasks_of_type(t.description), id) end
    release_unique(id, t.unique)
    for _, tag in ipairs(tags_of(t.tags)) do redis.call('ZREM', keys.tasks_with_tag(tag), id) end
  end
  history.keep(id, 'RENAME', state == 'completed' and result_of(id))
  redis.call('UNLINK', keys.rq_job(id), keys.rq_results(id), keys.output(id))
end
