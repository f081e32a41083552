-- @include _prelude
-- Returns the job of one adopted task to RQ, even if it had begun, and removes the task. No worker may run jobs then.
-- ARGV: now, task, job, when it was enqueued when it was adopted, "1" once the dependents of an ended job are enqueued.
-- Returns the outcome:
--   waits: the job is in front of its RQ queue; RQ's worker runs it;
--   abandoned: RQ's worker fails it at its next maintenance, as a job whose worker died: it calls `on_failure`;
--   ended: the job has ended, was deleted, or waits elsewhere in RQ;
--   dependents: nothing yet, as it ended without having enqueued its dependents: call this again after that;
--   running: nothing, as the lease of the task has not ended, or the task has ended and `rq_fail` is to write that first.
local task, id, enqueued_at, enqueued = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
write_even_when_full()
local state, queue, token, data = record_values(task, 'state', 'origin', 'token', 'data')
if ENDED[state] or (state == 'running' and (number_of(redis.call('ZSCORE', keys.LEASES, task)) or 0) > now) then
  return 'running'
end

local function forget_executions(job)
  for _, execution in ipairs(redis.call('ZRANGE', keys.rq_executions(id), 0, 99)) do
    redis.call('ZREM', keys.rq_started(job.origin), id .. ':' .. execution)
    redis.call('DEL', keys.rq_execution(id .. ':' .. execution))
  end
  redis.call('DEL', keys.rq_executions(id))
end

-- Returns the outcome for the job.
local function hand_over()
  local job = record(id, 'status', 'origin', 'enqueued_at')
  if not job or not job.origin or (job.enqueued_at or '') ~= enqueued_at then return 'ended' end
  if job.status == 'queued' or job.status == 'started' then
    forget_executions(job)
    redis.call('HSET', keys.rq_job(id), 'status', 'queued')
    redis.call('LREM', keys.rq_queue(job.origin), 1, id)
    redis.call('LPUSH', keys.rq_queue(job.origin), id)
    return 'waits'
  end
  if job.status == 'failed' and string.find(data or '', '"died":true', 1, true) then
    redis.call('HSET', keys.rq_job(id), 'status', 'started')
    redis.call('ZREM', keys.rq_failed(job.origin), id)
    redis.call('ZADD', keys.rq_started(job.origin), 1, id .. ':' .. task)
    return 'abandoned'
  end
  local ended = job.status == 'finished' or job.status == 'failed'
  return ended and enqueued ~= '1' and redis.call('EXISTS', keys.rq_job(id .. ':dependents')) == 1 and 'dependents' or 'ended'
end

local done = hand_over()
if done == 'dependents' then return done end
if state and queue then
  redis.call('LREM', keys.rq_queue(queue), 1, task)
  remove(task, state, queue, token or '')
end
redis.call('HDEL', keys.RQ_ADOPTED, task)
return done
