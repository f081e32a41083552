-- @include _prelude _webhooks _relations
-- Stops running RQ jobs of a worker, as RQ's commands do: cancels their tasks. `rq_fail` writes the outcome to the jobs.
-- ARGV: now, worker, job ("" for any), execution ("" for any), the status that the jobs get.
-- Returns how many are being stopped.
write_even_when_full()
local asked, adoptions = 0, redis.call('HGETALL', keys.RQ_ADOPTED)
for at = 1, #adoptions, 2 do
  local task, job = adoptions[at], string.match(adoptions[at + 1], '^%S* (.*)$')
  local state, worker = record_values(task, 'state', 'worker_name')
  -- A worker holds tasks ahead: only their jobs' status shows which have begun. A command that comes late may name an
  -- execution that has ended: the job, which runs again, is not stopped for it.
  if (ARGV[3] == '' or ARGV[3] == job) and state == 'running' and worker == ARGV[2] and record_values(job, 'status') == 'started'
      and (ARGV[4] == '' or redis.call('ZSCORE', keys.rq_executions(job), ARGV[4])) then
    redis.call('HSET', keys.rq_job(task), 'stopped', ARGV[5])
    cancel_one(task, '')
    asked = asked + 1
  end
end
return asked
