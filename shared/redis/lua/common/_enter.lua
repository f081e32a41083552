-- How a task enters the structures of a state that ends it or that waits for a time.

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
