-- @include _prelude _task_fields
-- Stores one new task without relations, as `submit.lua` does, and dispatches it to an idle worker if there is one.
-- It knows no limits, tenants, dependencies or batches, which keeps it small: what a script defines costs time at every
-- call, most of all on an idle server. Limits of other types and tenants of other queues do not matter to it.
-- ARGV: now, then as for `submit.lua` with one task, up to its extra fields.
-- Returns its state, {"full"} or {"many"}; nothing where a limit of its type or tenants apply: then nothing was stored, and
--   `submit.lua` has to.
local limit, id, queue, task_type, data, tags, extra = tonumber(string.match(ARGV[2], '^%d+')), ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[9], ARGV[10]
if is_draining() and string.sub(ARGV[2], -1) ~= '!' and redis.call('EXISTS', keys.rq_job(id)) == 0 then
  demand_active()
end
local own_limit, lane = 'type:' .. task_type, lane_for(queue, task_type)

-- Most tasks while workers are busy: new, without terms, limits of any kind and idle workers. The rest of this script
-- would do the same with twice the commands.
if limit == 0 and ARGV[7] .. ARGV[8] .. tags == '' and
  redis.call('EXISTS', keys.LIMITS, keys.LIMITS_DUE, keys.FAIR, keys.PARKED_CLAIMS, keys.rq_job(id)) == 0 then
  if not register_queue(queue, ARGV[2]) then return {'many'} end
  local stamp = iso(now)
  redis.call('HSET', keys.rq_job(id), 'state', 'pending', 'status', 'queued', 'data', data, 'origin', queue,
    'description', task_type, 'created_at', stamp, 'enqueued_at', stamp, unpack(extra ~= '' and cjson.decode(extra) or {}))
  redis.call('ZADD', keys.TASKS, NOW, id)
  redis.call('ZADD', keys.tasks_of_type(task_type), NOW, id)
  count('submitted', 1)
  enter_queue(id, queue, nil, lane)
  return 'pending'
end

-- @later
if redis.call('EXISTS', keys.LIMITS, keys.LIMITS_DUE, keys.FAIR) > 0 and (redis.call('HEXISTS', keys.LIMITS, own_limit) == 1 or
  redis.call('ZSCORE', keys.LIMITS_DUE, own_limit) or redis.call('ZSCORE', keys.LIMITS_DUE, 'worker:' .. task_type) or redis.call('SISMEMBER', keys.FAIR, lane) == 1) then return false end
local known = redis.call('HGET', keys.rq_job(id), 'state')
-- Run again with quarantine (see `_quarantine.lua`), it finds the task that it had stored before. That is not enqueued
-- yet, so it starts again.
local stopped = known and redis.quarantining and (known == 'pending' or known == 'scheduled') and
  not redis.call('ZSCORE', index_key(known, queue), id)
if known and not stopped then return known end
if limit > 0 and redis.call('ZCARD', keys.pending(queue)) + redis.call('ZCARD', keys.throttled(queue)) >= limit then
  return {'full'}
end
if not register_queue(queue, ARGV[2]) then return {'many'} end

local function moment(text)
  if text == '' then return nil end
  if string.sub(text, 1, 1) == '+' then return now + tonumber(string.sub(text, 2)) end
  return tonumber(text)
end

-- Returns a parked claim, or nil for a corrupt one.
local function readable(text)
  local whole, parked = pcall(cjson.decode, text)
  if not whole or type(parked) ~= 'table' then return nil end
  local named = type(parked.worker) == 'string' and type(parked.token) == 'string' and type(parked.patterns) == 'string'
  return named and type(parked.takes) == 'table' and number_of(parked.lease) and number_of(parked.room) and parked
end

-- A worker without a set is of an earlier version; a lost set is published again within seconds.
local function has_type(worker)
  local set = redis.call('HGET', keys.TYPES_OF, worker)
  if not set or set == '-' then return not set end
  local version, first = unpack(redis.call('HMGET', keys.type_set(set), task_type, '@first'))
  return version or not first
end

-- Returns whether a parked claim takes a task of the lane, which it names or has a pattern for.
local function serves(parked)
  local takes = parked.takes[lane]
  if takes == nil then takes = parked.kind == string.sub(lane, #queue + 1) and matches_one(parked.patterns, queue) end
  return takes and tonumber(parked.room) >= #data
end

-- Returns the parked claim of the worker that has been idle longest, if no task waits before this one, and its claimant. A
-- worker that no longer listens, or whose claim is corrupt, is skipped. The claim carries the token of that worker's next
-- claim, and is answered as if that had arrived: a worker that misses the answer gets the same task when it claims, and
-- recognizes a repetition.
local function parked_claim_for_it()
  if redis.call('EXISTS', keys.PAUSED, keys.DEFERRED_WORK, keys.rq_queue(lane)) > 0 then return nil end
  for _, claimant in ipairs(redis.call('ZRANGE', keys.PARKED_CLAIMS, 0, 31)) do
    local parked = readable(redis.pcall('GET', keys.parked_claim(claimant)))
    if not parked or redis.call('PUBSUB', 'NUMSUB', keys.direct_dispatch(parked.worker))[2] == 0 then
      redis.call('ZREM', keys.PARKED_CLAIMS, claimant)
    elseif serves(parked) and has_type(parked.worker) then
      redis.call('ZREM', keys.PARKED_CLAIMS, claimant)
      return parked, claimant
    end
  end
end

local stamp, due, expires = iso(now), moment(ARGV[7]), moment(ARGV[8])
local state = (due and due > now) and 'scheduled' or 'pending'

-- The record comes first: a full Redis refuses the first write of a script, and none after it.
redis.call('HSET', keys.rq_job(id), 'state', state, 'status', RQ_STATUS[state], 'data', data, 'origin', queue,
  'description', task_type, 'created_at', stamp, 'enqueued_at', stamp)
local parked, claimant
if state == 'pending' and not expires then parked, claimant = parked_claim_for_it() end
local more = extra ~= '' and cjson.decode(extra) or {}
if #more > 0 then redis.call('HSET', keys.rq_job(id), unpack(more)) end
if due and due > now then redis.call('HSET', keys.rq_job(id), 'due_at', num(due)) end
if expires then
  redis.call('HSET', keys.rq_job(id), 'expires_at', num(expires))
  watch_deadline(id, num(expires))
end
redis.call('ZADD', keys.TASKS, NOW, id)
redis.call('ZADD', keys.tasks_of_type(task_type), NOW, id)
if tags ~= '' then
  redis.call('HSET', keys.rq_job(id), 'tags', tags)
  for _, tag in ipairs(cjson.decode(tags)) do redis.call('ZADD', keys.tasks_with_tag(tag), NOW, id) end
end
count('submitted', 1)
if state == 'scheduled' then
  enter_due(id, state, queue, due)
  return state
end
if not parked then
  enter_queue(id, queue, nil, lane)
  return state
end

-- Starts a task as a claim does, and gives the same answer.
local worker, token = parked.worker, parked.token
local said = {time_limit = '', retry = '', meta = ''}
for at = 1, #more, 2 do said[more[at]] = more[at + 1] end
list_lane(lane, id, worker)
set_state(id, 'pending', 'running', 'started_at', stamp, 'worker_name', worker, 'attempt', 1, 'token', token)
redis.call('ZADD', keys.LEASES, num(now + tonumber(parked.lease)), id)
redis.call('ZADD', keys.rq_started(queue), '+inf', id .. ':' .. token)
redis.call('SET', keys.dispatched(claimant), token .. ' ' .. id, 'EX', 60)
redis.call('DEL', keys.parked_claim(claimant))
local task = {id, queue, task_type, data, 1, 0, 0, 0, said.time_limit, said.retry, said.meta, NOW, '', 0}
redis.call('PUBLISH', keys.direct_dispatch(worker), cjson.encode({token, {NOW, {}, 0, {task}, -1, TASK_FIELDS}}))
return 'pending'
