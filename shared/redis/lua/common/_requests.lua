-- Part of `_relations.lua`: changes of one task, by request.

local WAITING = {pending = true, scheduled = true, retrying = true, blocked = true}

-- Cancels a waiting task at once; requests the worker of a running one to stop it. Returns {state found, outcome}.
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
  local t = record(id, 'state', 'origin', 'data', 'description', 'meta', 'attempt', 'sent_back', 'batch')
  if t and nonce and t.sent_back == nonce then return {'failed', 1} end
  local state = t and t.state or ''
  local queue = t and t.origin
  if not (state == 'failed' and queue and (t.data or data) and t.description) then return {state, 0} end
  if t.batch and stopped(t.batch) then return {state, 0, t.batch} end
  history.keep(id, 'COPY')
  redis.call('HDEL', keys.rq_job(id), 'failures', 'crashes', 'losses', 'suspicions', 'ended_at', 'begun', 'cancel', 'progress',
    'expires_at', 'due_at', 'refused', 'refusal', 'step_errors')
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
