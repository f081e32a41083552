-- @include _prelude _job_task
-- Writes the end of an RQ job's task to the job, unless RQ's own code did that in the executor: the
-- executor died, the job was refused, or the task was cancelled.
-- ARGV: now, task, its state, the error for RQ's results, the id of a new task ("" for none), its type, its data as RQ's
--   call with `@` in place of the data. The new task calls `on_failure` or `on_stopped` of the job and enqueues those that depend on it.
-- Returns 1 when the job was changed.
local A_YEAR = 31536000
-- RQ's own code, or the program, has decided about a job with one of these.
local DECIDED = {finished = true, failed = true, canceled = true, stopped = true, scheduled = true}
write_even_when_full()
local enqueued_at, id = string.match(redis.call('HGET', keys.RQ_ADOPTED, ARGV[2]) or '', '^(%S*) (.*)$')
redis.call('HDEL', keys.RQ_ADOPTED, ARGV[2])
local job = id and record(id, 'status', 'origin', 'enqueued_at', 'failure_ttl', 'failure_callback_name',
  'stopped_callback_name', 'description')
if not job or not job.origin or DECIDED[job.status or ''] or (job.enqueued_at or '') ~= enqueued_at then return 0 end

local queue, seconds = job.origin, math.floor(now / 1000000)
for _, execution in ipairs(redis.call('ZRANGE', keys.rq_executions(id), 0, 99)) do
  redis.call('ZREM', keys.rq_started(queue), id .. ':' .. execution)
  redis.call('DEL', keys.rq_execution(id .. ':' .. execution))
end
redis.call('DEL', keys.rq_executions(id))
local task = record(ARGV[2], 'origin', 'stopped')
local status = task and task.stopped or ARGV[3] == 'cancelled' and 'canceled' or 'failed'
redis.call('HSET', keys.rq_job(id), 'status', status, 'ended_at', iso(now))
if status == 'canceled' then
  redis.call('ZADD', keys.rq_canceled(queue), '+inf', id)
else
  local kept = number_of(job.failure_ttl) or A_YEAR
  redis.call('ZADD', keys.rq_failed(queue), kept < 0 and '+inf' or num(seconds + kept), id)
  redis.call('XADD', keys.rq_results(id), 'MAXLEN', 10, '*', 'type', '2', 'exc_string', ARGV[4])
end
local follow_up, callback = ARGV[5], status == 'stopped' and job.stopped_callback_name or job.failure_callback_name
local called = (callback or '') ~= '' or redis.call('EXISTS', keys.rq_job(id .. ':dependents')) == 1
if follow_up ~= '' and called and status ~= 'canceled' and task and task.origin then
  local about = {job = id, queue = queue, enqueued_at = enqueued_at, description = job.description, died = true}
  write_job_task(job_tasks(task.origin, ARGV[6], ARGV[7]), follow_up, about, CALLBACKS)
  redis.call('ZADD', keys.TASKS, NOW, follow_up)
  redis.call('ZADD', keys.tasks_of_type(ARGV[6]), NOW, follow_up)
  enter_queue(follow_up, task.origin, nil, task.origin)
  count('submitted', 1)
end
return 1
