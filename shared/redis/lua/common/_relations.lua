-- What ties tasks to each other: the tasks that one waits for (its parents), those that wait for it, and its batch.
-- Only a task whose record has the field `links` is tied to anything; of all others a script reads that field and no
-- more. Whatever ends a task does this in the same step: its batch counts it, its children are told. A step tells a
-- hundred children; the rest is owed, in `taskqueue:owed`, and paid by the next claims and by the housekeeper, so
-- that ten thousand children hold nobody up and a crash in the middle costs nothing.
-- In `taskqueue:children:ID` a child's score says where it stands: above 0, it has not been told how this parent ended
-- (the score is when the child was submitted); 0, it has, and the parent's record is kept for it until it has ended;
-- below 0, it waits for a parent in the dead letters to be retried.
local OWED = 'taskqueue:owed'
local SLOT = {pending = true, running = true}
local budget, enqueued = 100, 0
local moved

local function batch_key(batch) return 'taskqueue:batch:' .. batch end
local function children_key(id) return 'taskqueue:children:' .. id end
local function line_key(batch) return 'taskqueue:batch-line:' .. batch end

local function owe(what)
  if redis.call('ZADD', OWED, 'NX', NOW, what) == 1 then ring(1) end
end

-- A blocked task waits no longer, unless it was to run at a time that has not come. Returns its new state.
local function enqueue(id, queue, due)
  leave(id, 'blocked', queue, '')
  if (number_of(due) or 0) > now then
    redis.call('HSET', job_key(id), 'state', 'scheduled', 'status', 'scheduled')
    enter_due(id, 'scheduled', queue, tonumber(due))
    return 'scheduled'
  end
  redis.call('HSET', job_key(id), 'state', 'pending', 'status', 'queued', 'enqueued_at', iso(now))
  redis.call('RPUSH', 'rq:queue:' .. queue, id)
  redis.call('SADD', 'rq:queues', 'rq:queue:' .. queue)
  redis.call('ZADD', 'taskqueue:pending:' .. queue, num(now + enqueued), id)
  enqueued = enqueued + 1
  if enqueued <= 64 then ring(1, queue) end
  return 'pending'
end

local function block(id, queue)
  redis.call('HSET', job_key(id), 'state', 'blocked', 'status', 'deferred')
  redis.call('ZADD', BLOCKED, NOW, id)
  redis.call('ZADD', 'rq:deferred:' .. queue, '+inf', id)
end

-- --- batches ---

-- How many more of a batch may be in line or on a worker; nil when it has no limit.
local function slots(batch)
  local v = redis.call('HMGET', batch_key(batch), 'max_running', 'pending', 'running')
  if not number_of(v[1]) then return nil end
  return number_of(v[1]) - (number_of(v[2]) or 0) - (number_of(v[3]) or 0)
end

local function admit(batch)
  -- A batch whose record is gone, or says nothing of a limit any more, holds nobody back.
  local room, counted = math.min(slots(batch) or 100, 100), redis.call('HEXISTS', batch_key(batch), 'total') == 1
  while room > 0 do
    local id = redis.call('ZRANGE', line_key(batch), 0, 0)[1]
    if not id then return end
    redis.call('ZREM', line_key(batch), id)
    local v = fields(id, 'state', 'origin', 'due_at')
    if v and v[1] == 'blocked' then
      local to = enqueue(id, v[2], v[3])
      if counted then
        redis.call('HINCRBY', batch_key(batch), 'blocked', -1)
        redis.call('HINCRBY', batch_key(batch), to, 1)
      end
      room = room - 1
    end
  end
end

local function finish_batch(batch)
  redis.call('HSET', batch_key(batch), 'done_at', NOW)
  local id = redis.call('HGET', batch_key(batch), 'then')
  local v = id and fields(id, 'state', 'origin', 'due_at')
  if v and v[1] == 'blocked' then enqueue(id, v[2], v[3]) end
end

-- When all its tasks have left the records it may go too, once it is old enough.
local function note_empty(batch)
  local b = redis.call('HMGET', batch_key(batch), 'total', 'removed', 'created_at')
  if b[1] and (number_of(b[2]) or 0) >= (number_of(b[1]) or 0) then
    redis.call('ZADD', 'taskqueue:batches:empty', number_of(b[3]) and b[3] or NOW, batch)
  end
end

local function close_batch(batch)
  redis.call('ZREM', 'taskqueue:batches:open', batch)
  local b = redis.call('HMGET', batch_key(batch), 'total', 'ended')
  if not b[1] then return 0 end
  redis.call('HSET', batch_key(batch), 'closed', '1')
  if (number_of(b[2]) or 0) >= (number_of(b[1]) or 0) then finish_batch(batch) end
  note_empty(batch)
  return 1
end

-- Nothing more of it starts from this moment on; who waits is cancelled step by step.
local function stop_batch(batch, reason, work)
  redis.call('HSET', batch_key(batch), 'stopped', reason, 'stopped_at', NOW, 'work', work, 'work_at', '-1')
  owe('batch:' .. batch)
end

-- A task of a batch came from one state to another.
local function recount(batch, from, to)
  local key = batch_key(batch)
  local b = redis.call('HMGET', key, 'total', 'max_running', 'stop_on_error', 'closed', 'stopped')
  if not b[1] then return end
  redis.call('HINCRBY', key, from, -1)
  local there = redis.call('HINCRBY', key, to, 1)
  if ENDED[to] then
    local ended = ENDED[from] and 0 or redis.call('HINCRBY', key, 'ended', 1)
    if to == 'failed' and number_of(b[3]) and not b[5] and there >= number_of(b[3]) then
      stop_batch(batch, there .. ' of its tasks failed', 'stop')
    end
    if b[4] and ended >= (number_of(b[1]) or 0) then finish_batch(batch) end
  elseif ENDED[from] then
    redis.call('HINCRBY', key, 'ended', -1)
    redis.call('HDEL', key, 'done_at')
  end
  if b[2] and SLOT[from] and not SLOT[to] then admit(batch) end
end

local function stopped(batch)
  return redis.call('HGET', batch_key(batch), 'stopped')
end

-- --- parents and children ---

-- The parents in a record, each {id, on}.
local function parents_of(text)
  local parents = {}
  for _, each in ipairs(list_of(text, 262144)) do
    if type(each) == 'table' and type(each[1]) == 'string' and #parents < 1000 then parents[#parents + 1] = each end
  end
  return parents
end

-- What the state of a parent ("gone" when it is no more) means for a child: wait, met, hold (until the parent is
-- retried) or cancel.
local function judge(state, on, policy)
  if state ~= 'gone' and not ENDED[state] then return 'wait' end
  if state == 'completed' or on == 'end' or policy == 'release' then return 'met' end
  if policy == 'wait' and state == 'failed' then return 'hold' end
  return 'cancel'
end

local function unmet(parent, state)
  local what = ({failed = 'failed', cancelled = 'was cancelled', expired = 'expired', gone = 'was removed'})[state]
  return 'task ' .. parent .. ', which it depends on, ' .. what
end

local function state_of(id)
  local v = fields(id, 'state')
  return v and v[1] or 'gone'
end

local function register(id, parent, score)
  redis.call('HSET', job_key(parent), 'links', '1')
  redis.call('ZADD', children_key(parent), score, id)
end

-- A new child: the record of its parent counts it, and names the first of them for those who look.
local function add_child(id, parent, score)
  register(id, parent, score)
  local count = redis.call('HINCRBY', job_key(parent), 'children', 1)
  if count <= 50 then redis.call('HSET', job_key(parent), 'child:' .. count, id) end
end

-- Nobody has to keep anything for this task any more.
local function let_go(id, parents)
  for _, parent in ipairs(parents_of(parents)) do redis.call('ZREM', children_key(parent[1]), id) end
end

-- All its parents are as it wanted them: it runs when its batch has room.
local function free(id)
  local v = fields(id, 'origin', 'due_at', 'batch')
  local later = (number_of(v[2]) or 0) > now
  if v[3] and not later and (slots(v[3]) or 1) <= 0 then
    redis.call('ZADD', line_key(v[3]), NOW, id)
    return
  end
  local to = enqueue(id, v[1], v[2])
  if v[3] then recount(v[3], 'blocked', to) end
end

local function cancel_waiting(id, state, queue, reason)
  leave(id, state, queue, '')
  redis.call('ZREM', DEADLINES, id)
  redis.call('HSET', job_key(id), 'state', 'cancelled', 'status', 'canceled', 'cancel', reason, 'ended_at', iso(now))
  enter_ended(id, 'cancelled', queue)
  count('cancelled', 1)
  moved(id, state, 'cancelled')
end

local function condition(parents, parent)
  for _, each in ipairs(parents_of(parents)) do
    if each[1] == parent then return each[2] end
  end
  return 'end'
end

-- Whether a task in this state still wants the results of its parents: a dead letter does, it may be retried.
local function keeps(state) return state ~= 'gone' and (state == 'failed' or not ENDED[state]) end

-- One child learns how one parent ended.
local function tell(id, parent, state)
  local key = children_key(parent)
  local v = fields(id, 'state', 'origin', 'parents', 'on_parent_failure')
  if not v or not v[1] or not v[3] then
    redis.call('ZREM', key, id)
    return
  end
  -- Children that were told before this one may have ended it: then it has let go of its parents already.
  if v[1] ~= 'blocked' then
    if keeps(v[1]) then redis.call('ZADD', key, 'XX', 0, id) else redis.call('ZREM', key, id) end
    return
  end
  local verdict = judge(state, condition(v[3], parent), v[4])
  if verdict == 'hold' then
    redis.call('ZADD', key, '-' .. NOW, id)
  elseif verdict == 'cancel' then
    redis.call('ZADD', key, 0, id)
    cancel_waiting(id, 'blocked', v[2], unmet(parent, state))
  else
    redis.call('ZADD', key, 0, id)
    if verdict == 'met' and redis.call('HINCRBY', job_key(id), 'waits', -1) <= 0 then free(id) end
  end
end

-- Tells the children of a task how it ended, as many as the budget allows. A dead letter's children that hold on have
-- been told; they are told again when it has ended otherwise.
local function settle(parent)
  local state, key = state_of(parent), children_key(parent)
  if state ~= 'gone' and not ENDED[state] then
    redis.call('ZREM', OWED, 'task:' .. parent)
    return
  end
  local most = math.max(budget, 0)
  local ids = redis.call('ZRANGEBYSCORE', key, '(0', '+inf', 'LIMIT', 0, most)
  if state ~= 'failed' and #ids < most then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', '(0', 'LIMIT', 0, most - #ids)) do ids[#ids + 1] = id end
  end
  budget = budget - #ids
  for _, id in ipairs(ids) do tell(id, parent, state) end
  if #ids >= most then
    owe('task:' .. parent)
  else
    redis.call('ZREM', OWED, 'task:' .. parent)
    if state == 'gone' then redis.call('UNLINK', key) end
  end
end

-- --- what the other scripts say ---

-- A task came from one state to another: to be said after its record says so.
moved = function(id, from, to)
  local v = fields(id, 'links', 'batch', 'parents', 'children', 'webhook')
  if not v or not v[1] then return end
  if v[2] then
    if from == 'blocked' then redis.call('ZREM', line_key(v[2]), id) end
    recount(v[2], from, to)
  end
  if v[3] and not keeps(to) then let_go(id, v[3]) end
  if v[4] and ENDED[to] then settle(id) end
  if v[5] and ENDED[to] then tell_outside(id, to, v[5]) end
end

-- The record of an ended task is about to be removed.
local function forsake(id)
  local v = fields(id, 'links', 'batch', 'parents', 'children')
  if not v or not v[1] then return end
  if v[2] and redis.call('EXISTS', batch_key(v[2])) == 1 then
    redis.call('HINCRBY', batch_key(v[2]), 'removed', 1)
    note_empty(v[2])
  end
  if v[3] then let_go(id, v[3]) end
  if v[4] and redis.call('EXISTS', children_key(id)) == 1 then owe('task:' .. id) end
end

-- Whether a completed task has to be kept although its time is over, because a child has not had its result yet. What
-- children that have ended left behind is put away here.
local function needed(id)
  local v = fields(id, 'children')
  if not (v and v[1]) then return false end
  local key = children_key(id)
  for _, child in ipairs(redis.call('ZRANGE', key, 0, 19)) do
    if keeps(state_of(child)) then return true end
    redis.call('ZREM', key, child)
  end
  return redis.call('EXISTS', key) == 1
end

-- Instead of going to its queue, a task of a batch that has no room gets in the line of its batch. To be asked after it
-- has left its old state, and before it is put into its queue; `score` is its place in that line.
local function held_back(id, from, queue, score)
  local v = fields(id, 'links', 'batch')
  if not v or not v[1] or not v[2] then return false end
  if (slots(v[2]) or 1) > 0 then return false end
  block(id, queue)
  redis.call('ZADD', line_key(v[2]), score, id)
  recount(v[2], from, 'blocked')
  return true
end

-- --- one task, as people ask for it ---

local WAITING = {pending = true, scheduled = true, retrying = true, blocked = true}

-- Cancels a waiting task at once; a running one by asking its worker to stop it. Returns {state found, what happened}.
local function cancel_one(id, reason)
  local v = fields(id, 'state', 'origin', 'worker_name')
  if not v or not v[1] then return {'', 'unknown'} end
  local state = v[1]
  if state == 'running' then
    redis.call('HSET', job_key(id), 'cancel', reason)
    local control = 'taskqueue:control:' .. (v[3] or '')
    redis.call('RPUSH', control, 'cancel ' .. id)
    redis.call('EXPIRE', control, 3600)
    return {state, 'requested'}
  end
  if not WAITING[state] then return {state, state == 'cancelled' and 'cancelled' or 'ended'} end
  cancel_waiting(id, state, v[2], reason)
  return {state, 'cancelled'}
end

-- Sends a dead letter back with all its retries, with other data if there are any. Returns {state found, 1 when done},
-- or {"failed", 0, its batch} when that was stopped: the next claim would cancel it, and no dead letter would be left.
-- `nonce` is that of the command: one that is sent again after a lost answer is told what was done the first time.
local function requeue_one(id, data, cause, nonce)
  local v = fields(id, 'state', 'origin', 'data', 'description', 'meta', 'attempt', 'sent_back', 'batch')
  if v and nonce and v[7] == nonce then return {'failed', 1} end
  local state = v and v[1] or ''
  local queue = v and v[2]
  if not (state == 'failed' and queue and (v[3] or data) and v[4]) then return {state, 0} end
  if v[8] and stopped(v[8]) then return {state, 0, v[8]} end
  leave(id, 'failed', queue, '')
  redis.call('HDEL', job_key(id), 'failures', 'crashes', 'losses', 'ended_at', 'begun', 'cancel', 'progress',
    'expires_at', 'due_at', 'refused', 'refusal')
  if data then
    redis.call('HSET', job_key(id), 'data', data)
    redis.call('HINCRBY', job_key(id), 'amended', 1)
  end
  note_replay(id, v[5], cause or '', v[6])
  redis.call('HSET', job_key(id), 'token', '', 'sent_back', nonce or '')
  hold_unique_again(id, {start = true, ['end'] = true})
  count('requeued', 1)
  if held_back(id, 'failed', queue, NOW) then return {state, 1} end
  redis.call('HSET', job_key(id), 'state', 'pending', 'status', 'queued', 'enqueued_at', iso(now))
  redis.call('RPUSH', 'rq:queue:' .. queue, id)
  redis.call('SADD', 'rq:queues', 'rq:queue:' .. queue)
  redis.call('ZADD', 'taskqueue:pending:' .. queue, NOW, id)
  ring(1, queue)
  moved(id, 'failed', 'pending')
  return {state, 1}
end

-- --- what is owed ---

local function carry_out(work, id, reason)
  if work == 'retry' then
    requeue_one(id)
  elseif work == 'cancel' or state_of(id) ~= 'running' then
    cancel_one(id, reason)
  end
end

local function work_on_batch(batch)
  local key = batch_key(batch)
  local v = redis.call('HMGET', key, 'work', 'work_at', 'stopped')
  local most = math.max(budget, 0)
  local after = number_of(v[2]) and v[2] or '-1' -- where it cannot be read, it begins anew
  local items = v[1] and redis.call('ZRANGEBYSCORE', 'taskqueue:batch-items:' .. batch, '(' .. after, '+inf', 'WITHSCORES',
    'LIMIT', 0, most) or {}
  budget = budget - #items / 2
  for at = 1, #items, 2 do carry_out(v[1], items[at], v[3] or 'its batch was stopped') end
  if #items < 2 * most then
    redis.call('HDEL', key, 'work', 'work_at')
    redis.call('ZREM', OWED, 'batch:' .. batch)
  else
    redis.call('HSET', key, 'work_at', items[#items])
  end
end

-- Goes on with what is owed, with so many tasks at most; returns how many it dealt with.
local function pay(most)
  budget = most
  for _ = 1, 20 do
    local what = budget > 0 and redis.call('ZRANGE', OWED, 0, 0)[1]
    if not what then break end
    local kind, id = string.match(what, '^(%a+):(.*)$')
    if kind == 'task' then settle(id)
    elseif kind == 'batch' then work_on_batch(id)
    else redis.call('ZREM', OWED, what) end
  end
  return most - budget
end

-- --- recovery ---

-- The state and queue that a task is listed under whose record does not say them: its batch counts it there.
local function listed_under(id, queues)
  for state in pairs(RQ_STATUS) do
    for _, queue in ipairs(queues) do
      if redis.call('ZSCORE', index_key(state, queue), id) then return state, queue end
    end
  end
  return 'pending', queues[1]
end

-- Puts right what a blocked task waits for, after its indexes were lost. Returns true when something was wrong, and how
-- many parents it looked at.
local function mend(id)
  local v = fields(id, 'parents', 'waits', 'batch', 'after_batch', 'origin', 'on_parent_failure')
  if not v then return false, 0 end
  if v[4] then
    local b = redis.call('HMGET', batch_key(v[4]), 'total', 'done_at')
    if b[1] and not b[2] then return false, 1 end
    enqueue(id, v[5], nil)
    return true, 1
  end
  local parents, waits, wrong = parents_of(v[1]), 0, false
  for _, parent in ipairs(parents) do
    local score, state = redis.call('ZSCORE', children_key(parent[1]), id), state_of(parent[1])
    if not score and state == 'gone' and judge(state, parent[2], v[6]) == 'met' then
      -- It was told before the parent's record was removed, and its place with it.
      score = 0
    elseif not score then
      score, wrong = NOW, true
      if state == 'gone' then redis.call('ZADD', children_key(parent[1]), score, id)
      else register(id, parent[1], score) end
    end
    local place = tonumber(score)
    if place ~= 0 then waits = waits + 1 end
    if (state == 'gone' or ENDED[state]) and (place > 0 or (place < 0 and state ~= 'failed')) and
      redis.call('ZADD', OWED, 'NX', NOW, 'task:' .. parent[1]) == 1 then
      wrong = true
    end
  end
  if number_of(v[2] or 0) ~= waits then
    redis.call('HSET', job_key(id), 'waits', waits)
    wrong = true
  end
  if waits == 0 and not (v[3] and redis.call('ZSCORE', line_key(v[3]), id)) then
    free(id)
    wrong = true
  elseif waits == 0 and (slots(v[3]) or 1) > 0 then
    admit(v[3])
    wrong = true
  end
  return wrong, #parents
end
