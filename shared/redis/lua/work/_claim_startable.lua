-- Part of `claim.lua`: which tasks may start here; ends or moves those that may not.

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
  local function lacks(task_type, refused, pinned)
    local version = not own_set or version_of(own_set, task_type)
    if not version then return is_published(own_set) end
    if not own_set or not (refused or pinned) then return false end
    if pinned then spend(20) end
    return not may_run(task_type, version, refused, pinned)
  end

  -- Moves a task that this worker cannot run to its wait queue. Returns true when it did.
  local function make_way(id, lane, t, enqueued)
    if not lacks(t[TYPE], t[REFUSED], t[PINNED]) then return false end
    if string.find(t[TYPE], '[^%w._-]') then -- no type has such a name
      dead_letter_corrupt(id, queue_of_lane[lane], t)
    else
      local group = worker_queue(t[TYPE], t[REFUSED], t[PINNED])
      spend(COST.throttled + wait_for_worker(id, lane, group, tenant_of(id, t), enqueued, t[SCORE]))
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
