-- Part of `_relations.lua`: parents and children.

-- Returns the parents in a record, each {id, on}.
local function parents_of(text)
  local parents = {}
  for _, each in ipairs(list_of(text, 262144)) do
    if type(each) == 'table' and type(each[1]) == 'string' and #parents < 1000 then parents[#parents + 1] = each end
  end
  return parents
end

-- Returns the effect of a parent's state ("gone" when it is removed) on a child: wait, met, hold (until the parent
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
