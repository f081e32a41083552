-- Included by the scripts that give tasks to workers.

-- The fields of a task, by their names in `ClaimedTask`. `enqueued_us` is "" if unknown, `parent_results` is JSON or "", and
-- `rq_job` only a task made of an RQ job has. The names come once with all tasks: in each they would cost 5 % of a claim.
local TASK_FIELDS = {'id', 'queue', 'type', 'data', 'attempt', 'failures', 'crashes', 'losses', 'timeout', 'retry', 'meta',
  'enqueued_us', 'parent_results', 'suspicions', 'rq_job'}
