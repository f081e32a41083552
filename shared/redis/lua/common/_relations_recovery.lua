-- Part of `_relations.lua`: recovery.

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
