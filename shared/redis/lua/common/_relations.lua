-- Relations between tasks: the tasks that one waits for (its parents), those that wait for it, and its batch. A task that
-- a handler has started is among the parents of its task, with the name of its group, because that waits for its end.
-- Only a task whose record has the field `relations` has relations; of all others a script reads only that field. Every
-- script that ends a task handles them in the same step: its batch counts it, its children are notified. A step
-- notifies a hundred children; the rest is deferred work in `keys.DEFERRED_WORK`, done by the next claims and by the
-- housekeeper, so that ten thousand children delay no other work and a crash in between loses nothing.
-- In `keys.children` the score of a child is its status: above 0, not yet notified how this parent ended
-- (the score is when the child was submitted); 0, notified, and the parent's record is kept until it has ended;
-- below 0, it waits for a parent in the dead letters to be retried.
local SLOT = {pending = true, running = true}
local budget = 100
local moved, cancel_children


local function defer(what)
  if redis.call('ZADD', keys.DEFERRED_WORK, 'NX', NOW, what) == 1 then notify_workers(1) end
end

-- Ends the wait of a blocked task, unless its due time is in the future. Returns its new state.
local function enqueue(id, queue, due)
  local later = number_of(due)
  if later and later <= now then later = nil end
  local to = later and 'scheduled' or 'pending'
  transition(id, 'blocked', to, queue, later)
  return to
end

-- Returns the relations of a task out of its extra fields; nil for most tasks.
local function relations_of(extra)
  if string.sub(extra, 1, 13) ~= '["relations",' then return nil end
  local list = cjson.decode(extra)
  local relations = {fields = list}
  for at = 1, #list, 2 do relations[list[at]] = list[at + 1] end
  if relations.parents then relations.parents = cjson.decode(relations.parents) end
  return relations
end

-- Returns whether a new task belongs into this partition: because of its batch, or of a parent.
local function is_tied(relations)
  return relations and (relations.batch or relations.after_batch or relations.parents)
end

-- --- batches ---

-- Returns how many more of a batch may be pending or running; nil without a limit.
local function slots(batch)
  local v = hash(keys.batch(batch), 'max_running', 'pending', 'running')
  if not number_of(v.max_running) then return nil end
  return number_of(v.max_running) - (number_of(v.pending) or 0) - (number_of(v.running) or 0)
end

local function start_waiting(batch)
  -- A batch without a record, or without a limit, holds no task back.
  local room, counted = math.min(slots(batch) or 100, 100), redis.call('HEXISTS', keys.batch(batch), 'total') == 1
  while room > 0 do
    local id = redis.call('ZRANGE', keys.batch_wait_queue(batch), 0, 0)[1]
    if not id then return end
    redis.call('ZREM', keys.batch_wait_queue(batch), id)
    local t = record(id, 'state', 'origin', 'due_at')
    if t and t.state == 'blocked' then
      local to = enqueue(id, t.origin, t.due_at)
      if counted then
        redis.call('HINCRBY', keys.batch(batch), 'blocked', -1)
        redis.call('HINCRBY', keys.batch(batch), to, 1)
      end
      room = room - 1
    end
  end
end

local function finish_batch(batch)
  redis.call('HSET', keys.batch(batch), 'done_at', NOW)
  local id = redis.call('HGET', keys.batch(batch), 'then')
  local t = id and record(id, 'state', 'origin', 'due_at')
  if t and t.state == 'blocked' then enqueue(id, t.origin, t.due_at) end
end

-- Registers a batch without tasks on record, to be removed once it is old enough.
local function note_empty(batch)
  local b = hash(keys.batch(batch), 'total', 'removed', 'created_at')
  if b.total and (number_of(b.removed) or 0) >= (number_of(b.total) or 0) then
    redis.call('ZADD', keys.EMPTY_BATCHES, number_of(b.created_at) and b.created_at or NOW, batch)
  end
end

local function close_batch(batch)
  redis.call('ZREM', keys.OPEN_BATCHES, batch)
  local b = hash(keys.batch(batch), 'total', 'ended')
  if not b.total then return 0 end
  redis.call('HSET', keys.batch(batch), 'closed', '1')
  if (number_of(b.ended) or 0) >= (number_of(b.total) or 0) then finish_batch(batch) end
  note_empty(batch)
  return 1
end

-- Stops a batch: none of its tasks starts from here on; waiting ones are cancelled step by step.
local function stop_batch(batch, reason, work)
  redis.call('HSET', keys.batch(batch), 'stopped', reason, 'stopped_at', NOW, 'work', work, 'work_at', '-1')
  defer('batch:' .. batch)
end

-- Counts a task of a batch that changed its state.
local function recount(batch, from, to)
  local key = keys.batch(batch)
  local b = hash(key, 'total', 'max_running', 'stop_on_error', 'closed', 'stopped')
  if not b.total then return end
  redis.call('HINCRBY', key, from, -1)
  local there = redis.call('HINCRBY', key, to, 1)
  if ENDED[to] then
    local ended = ENDED[from] and 0 or redis.call('HINCRBY', key, 'ended', 1)
    if to == 'failed' and number_of(b.stop_on_error) and not b.stopped and there >= number_of(b.stop_on_error) then
      stop_batch(batch, there .. ' of its tasks failed', 'stop')
    end
    if b.closed and ended >= (number_of(b.total) or 0) then finish_batch(batch) end
  elseif ENDED[from] then
    redis.call('HINCRBY', key, 'ended', -1)
    redis.call('HDEL', key, 'done_at')
  end
  if b.max_running and SLOT[from] and not SLOT[to] then start_waiting(batch) end
end

local function stopped(batch)
  return redis.call('HGET', keys.batch(batch), 'stopped')
end

-- --- parents and children ---

-- Returns the parents in a record, each {id, on}.
local function parents_of(text)
  local parents = {}
  for _, each in ipairs(list_of(text, 262144)) do
    if type(each) == 'table' and type(each[1]) == 'string' and #parents < 1000 then parents[#parents + 1] = each end
  end
  return parents
end

-- Returns what the state of a parent ("gone" when it is removed) means for a child: wait, met, hold (until the parent
-- is retried) or cancel.
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
  local t = record(id, 'state')
  return t and t.state or 'gone'
end

-- Registers a child. Returns whether the parent's record is here.
local function register(id, parent, score)
  redis.call('ZADD', keys.children(parent), score, id)
  if redis.call('EXISTS', keys.rq_job(parent)) == 0 then return false end
  redis.call('HSET', keys.rq_job(parent), 'relations', '1')
  return true
end

-- Adds a child: the record of its parent counts it, and names the first of them for display.
local function add_child(id, parent, score)
  if not register(id, parent, score) then return end
  local children = redis.call('HINCRBY', keys.rq_job(parent), 'children', 1)
  if children <= 50 then redis.call('HSET', keys.rq_job(parent), 'child:' .. children, id) end
end

-- Frees the parents' records from being kept for this task.
local function let_go(id, parents)
  for _, parent in ipairs(parents_of(parents)) do redis.call('ZREM', keys.children(parent[1]), id) end
end

-- Releases a task whose parents have all ended as required: it runs when its batch has a free slot.
local function free(id)
  local t = record(id, 'origin', 'due_at', 'batch')
  local later = (number_of(t.due_at) or 0) > now
  if t.batch and not later and (slots(t.batch) or 1) <= 0 then
    redis.call('ZADD', keys.batch_wait_queue(t.batch), NOW, id)
    return
  end
  local to = enqueue(id, t.origin, t.due_at)
  if t.batch then recount(t.batch, 'blocked', to) end
end

local function cancel_waiting(id, state, queue, reason)
  transition(id, state, 'cancelled', queue, nil, 'cancel', reason)
  count('cancelled', 1)
  moved(id, state, 'cancelled')
end

local function condition(parents, parent)
  for _, each in ipairs(parents_of(parents)) do
    if each[1] == parent then return each[2] end
  end
  return 'end'
end

-- Returns whether a task in this state still needs the results of its parents: a dead letter does, it may be retried.
local function keeps(state) return state ~= 'gone' and (state == 'failed' or not ENDED[state]) end

-- Notifies one child of the end of one parent.
local function notify_child(id, parent, state)
  local key, t = keys.children(parent), record(id, 'state', 'origin', 'parents', 'on_parent_failure')
  if not t or not t.state or not t.parents then
    redis.call('ZREM', key, id)
    return
  end
  -- A child notified before may have ended this one: then its parents are freed already.
  if t.state ~= 'blocked' then
    if keeps(t.state) then redis.call('ZADD', key, 'XX', 0, id) else redis.call('ZREM', key, id) end
    return
  end
  local verdict = judge(state, condition(t.parents, parent), t.on_parent_failure)
  if verdict == 'hold' then
    redis.call('ZADD', key, '-' .. NOW, id)
  elseif verdict == 'cancel' then
    redis.call('ZADD', key, 0, id)
    cancel_waiting(id, 'blocked', t.origin, unmet(parent, state))
  else
    redis.call('ZADD', key, 0, id)
    if verdict == 'met' and redis.call('HINCRBY', keys.rq_job(id), 'open_parents', -1) <= 0 then free(id) end
  end
end

-- Notifies the children of a task of its end, as many as the budget allows. Children that hold on to a dead letter are
-- notified again when it has ended otherwise.
local function notify_children(parent)
  local state, key = state_of(parent), keys.children(parent)
  if state ~= 'gone' and not ENDED[state] then
    redis.call('ZREM', keys.DEFERRED_WORK, 'task:' .. parent)
    return
  end
  local most = math.max(budget, 0)
  local ids = redis.call('ZRANGEBYSCORE', key, '(0', '+inf', 'LIMIT', 0, most)
  if state ~= 'failed' and #ids < most then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', key, '-inf', '(0', 'LIMIT', 0, most - #ids)) do ids[#ids + 1] = id end
  end
  budget = budget - #ids
  for _, id in ipairs(ids) do notify_child(id, parent, state) end
  if #ids >= most then
    defer('task:' .. parent)
  else
    redis.call('ZREM', keys.DEFERRED_WORK, 'task:' .. parent)
    if state == 'gone' then redis.call('UNLINK', key) end
  end
end

-- --- calls of the other scripts ---

-- Handles a task's change of state; to be called after its record is updated.
function moved(id, from, to)
  local t = record(id, 'relations', 'batch', 'parents', 'children', 'webhook', 'spawned')
  if not t or not t.relations then return end
  if t.batch then
    if from == 'blocked' then redis.call('ZREM', keys.batch_wait_queue(t.batch), id) end
    recount(t.batch, from, to)
  end
  if t.parents and not keeps(to) then let_go(id, t.parents) end
  if t.spawned and to == 'cancelled' then cancel_children(id) end
  if t.children and ENDED[to] then notify_children(id) end
  if t.webhook and ENDED[to] then create_delivery(id, to, t.webhook) end
end

-- Handles the coming removal of an ended task's record.
local function before_removal(id)
  local t = record(id, 'relations', 'batch', 'parents', 'children')
  if not t or not t.relations then return end
  if t.batch and redis.call('EXISTS', keys.batch(t.batch)) == 1 then
    redis.call('HINCRBY', keys.batch(t.batch), 'removed', 1)
    note_empty(t.batch)
  end
  if t.parents then let_go(id, t.parents) end
  if t.children and redis.call('EXISTS', keys.children(id)) == 1 then defer('task:' .. id) end
end

-- Returns whether a completed task is kept past its retention, because a child has not had its result yet. Removes
-- entries of children that have ended.
local function needed(id)
  local t = record(id, 'children')
  if not (t and t.children) then return false end
  local key = keys.children(id)
  for _, child in ipairs(redis.call('ZRANGE', key, 0, 19)) do
    if keeps(state_of(child)) then return true end
    redis.call('ZREM', key, child)
  end
  return redis.call('EXISTS', key) == 1
end

-- Moves a task of a batch without a free slot to the batch's wait queue instead of its queue; `place` is its place there.
-- Further arguments are fields of its record. Returns whether it did.
local function held_back(id, from, queue, place, ...)
  local t = record(id, 'relations', 'batch')
  if not t or not t.relations or not t.batch then return false end
  if (slots(t.batch) or 1) > 0 then return false end
  transition(id, from, 'blocked', queue, nil, ...)
  redis.call('ZADD', keys.batch_wait_queue(t.batch), place, id)
  recount(t.batch, from, 'blocked')
  return true
end

-- --- one task, by request ---

local WAITING = {pending = true, scheduled = true, retrying = true, blocked = true}

-- Cancels a waiting task at once; asks the worker of a running one to stop it. Returns {state found, what happened}.
local function cancel_one(id, reason)
  local t = record(id, 'state', 'origin', 'worker_name')
  if not t or not t.state then return {'', 'unknown'} end
  local state = t.state
  if state == 'running' then
    redis.call('HSET', keys.rq_job(id), 'cancel', reason)
    local control = keys.control(t.worker_name or '')
    redis.call('RPUSH', control, 'cancel ' .. id)
    redis.call('EXPIRE', control, 3600)
    return {state, 'requested'}
  end
  if not WAITING[state] then return {state, state == 'cancelled' and 'cancelled' or 'ended'} end
  cancel_waiting(id, state, t.origin, reason)
  return {state, 'cancelled'}
end

-- Cancels the tasks that a cancelled task has started, as many as the budget allows.
function cancel_children(id)
  local t = record(id, 'state', 'parents')
  if t and t.state == 'cancelled' then
    for _, child in ipairs(parents_of(t.parents)) do
      local c = child[3] and record(child[1], 'state', 'cancel')
      if c and c.state and not ENDED[c.state] and not c.cancel then
        if budget <= 0 then return defer('children:' .. id) end
        budget = budget - 1
        cancel_one(child[1], 'task ' .. id .. ', which started it, was cancelled')
      end
    end
  end
  redis.call('ZREM', keys.DEFERRED_WORK, 'children:' .. id)
end

-- Requeues a dead letter with all its retries, and with new data and a new score if given. Returns {state found, 1 when
-- done}, or {"failed", 0, its batch} when that was stopped: the next claim would cancel it, and no dead letter would be left.
-- `nonce` identifies the command: one repeated after a lost answer gets the first answer.
local function requeue_one(id, data, cause, nonce, score)
  local t = record(id, 'state', 'origin', 'data', 'description', 'meta', 'attempt', 'sent_back', 'batch', 'refused')
  if t and nonce and t.sent_back == nonce then return {'failed', 1} end
  local state = t and t.state or ''
  local queue = t and t.origin
  if not (state == 'failed' and queue and (t.data or data) and t.description) then return {state, 0} end
  if t.batch and stopped(t.batch) then return {state, 0, t.batch} end
  history.keep(id, 'COPY')
  redis.call('HDEL', keys.rq_job(id), 'failures', 'crashes', 'losses', 'suspicions', 'ended_at', 'begun', 'cancel', 'progress',
    'expires_at', 'due_at', 'refusal', 'step_errors')
  if not is_pinned(t.refused) then redis.call('HDEL', keys.rq_job(id), 'refused') end
  if data then redis.call('HSET', keys.rq_job(id), 'data', data) end
  if (score or '') ~= '' then redis.call('HSET', keys.rq_job(id), 'score', score) end
  note_replay(id, t.meta, cause or '', t.attempt)
  hold_unique_again(id, {start = true, ['end'] = true})
  if not held_back(id, 'failed', queue, NOW, 'token', '', 'sent_back', nonce or '') then
    transition(id, 'failed', 'pending', queue, nil, 'token', '', 'sent_back', nonce or '')
    moved(id, 'failed', 'pending')
  end
  if data then redis.call('HINCRBY', keys.rq_job(id), 'amended', 1) end
  count('requeued', 1)
  return {state, 1}
end

-- Enqueues a scheduled or retrying task at once. Returns {state found, 1 when done}.
local function run_now_one(id)
  local t = record(id, 'state', 'origin')
  local state = t and t.state or ''
  if not (state == 'scheduled' or state == 'retrying') then return {state, 0} end
  redis.call('HDEL', keys.rq_job(id), 'due_at') -- a restored task would wait for it again
  if held_back(id, state, t.origin, NOW) then return {state, 1} end
  transition(id, state, 'pending', t.origin)
  moved(id, state, 'pending')
  return {state, 1}
end

-- Moves a waiting task to the end of another queue, with its due time; a pending one only if fewer than `most` are
-- pending there (0: any number). Returns {state found, 1 when it is there}.
local function move_one(id, to, most)
  local t = record(id, 'state', 'origin', 'due_at')
  local state = t and t.state or ''
  if not WAITING[state] then return {state, 0} end
  if t.origin == to then return {state, 1} end
  if state == 'pending' and most > 0 and
    redis.call('ZCARD', keys.pending(to)) + redis.call('ZCARD', keys.throttled(to)) >= most then
    return {state, 0}
  end
  leave(id, state, t.origin, '')
  redis.call('HSET', keys.rq_job(id), 'origin', to, 'status', RQ_STATUS[state])
  enter(id, state, to, state ~= 'pending' and (number_of(t.due_at) or now) or nil)
  return {state, 1}
end

-- --- deferred work ---

-- Runs deferred work for at most so many tasks; returns how many it processed.
local function run_deferred_work(most)
  local function carry_out(work, id, reason)
    if work == 'retry' then
      requeue_one(id)
    elseif work == 'cancel' or state_of(id) ~= 'running' then
      cancel_one(id, reason)
    end
  end

  local function work_on_batch(batch)
    local key = keys.batch(batch)
    local v = hash(key, 'work', 'work_at', 'stopped')
    local left = math.max(budget, 0)
    local after = number_of(v.work_at) and v.work_at or '-1' -- a corrupt one starts again
    local items = v.work and redis.call('ZRANGEBYSCORE', keys.batch_items(batch), '(' .. after, '+inf', 'WITHSCORES',
      'LIMIT', 0, left) or {}
    budget = budget - #items / 2
    for at = 1, #items, 2 do carry_out(v.work, items[at], v.stopped or 'its batch was stopped') end
    if #items < 2 * left then
      redis.call('HDEL', key, 'work', 'work_at')
      redis.call('ZREM', keys.DEFERRED_WORK, 'batch:' .. batch)
    else
      redis.call('HSET', key, 'work_at', items[#items])
    end
  end

  budget = most
  for _ = 1, 20 do
    local what = budget > 0 and redis.call('ZRANGE', keys.DEFERRED_WORK, 0, 0)[1]
    if not what then break end
    local kind, id = string.match(what, '^(%a+):(.*)$')
    if kind == 'task' then notify_children(id)
    elseif kind == 'children' then cancel_children(id)
    elseif kind == 'batch' then work_on_batch(id)
    else redis.call('ZREM', keys.DEFERRED_WORK, what) end
  end
  return most - budget
end

-- --- recovery ---

-- Returns the state and queue under which a task is listed whose record lacks them: its batch counts it there.
local function listed_under(id, queues)
  for state in pairs(RQ_STATUS) do
    for _, queue in ipairs(queues) do
      if redis.call('ZSCORE', index_key(state, queue), id) then return state, queue end
    end
  end
  return 'pending', queues[1]
end

-- Repairs the dependencies of a blocked task after its indexes were lost. Returns true when something was wrong, and
-- how many parents it examined.
local function repair_blocked(id)
  local t = record(id, 'parents', 'open_parents', 'batch', 'after_batch', 'origin', 'on_parent_failure')
  if not t then return false, 0 end
  if t.after_batch then
    local b = hash(keys.batch(t.after_batch), 'total', 'done_at')
    if b.total and not b.done_at then return false, 1 end
    enqueue(id, t.origin, nil)
    return true, 1
  end
  local parents, open, wrong = parents_of(t.parents), 0, false
  for _, parent in ipairs(parents) do
    local score, state = redis.call('ZSCORE', keys.children(parent[1]), id), state_of(parent[1])
    if not score and state == 'gone' and judge(state, parent[2], t.on_parent_failure) == 'met' then
      -- It was notified before the parent's record was removed, and its entry with it.
      score = 0
    elseif not score then
      score, wrong = NOW, true
      if state == 'gone' then redis.call('ZADD', keys.children(parent[1]), score, id)
      else register(id, parent[1], score) end
    end
    local place = tonumber(score)
    if place ~= 0 then open = open + 1 end
    if (state == 'gone' or ENDED[state]) and (place > 0 or (place < 0 and state ~= 'failed')) and
      redis.call('ZADD', keys.DEFERRED_WORK, 'NX', NOW, 'task:' .. parent[1]) == 1 then
      wrong = true
    end
  end
  if number_of(t.open_parents or 0) ~= open then
    redis.call('HSET', keys.rq_job(id), 'open_parents', open)
    wrong = true
  end
  if open == 0 and not (t.batch and redis.call('ZSCORE', keys.batch_wait_queue(t.batch), id)) then
    free(id)
    wrong = true
  elseif open == 0 and (slots(t.batch) or 1) > 0 then
    start_waiting(t.batch)
    wrong = true
  end
  return wrong, #parents
end
