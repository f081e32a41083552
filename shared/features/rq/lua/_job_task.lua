-- The record of a task that is made of an RQ job.

local CALLBACKS = 120 -- seconds after RQ's own time limit, for the callbacks of a job

-- Returns the common fields of the tasks of one call. `call` is RQ's call with `@` in place of the data.
local function job_tasks(queue, task_type, call)
  local head, tail = string.match(call, '^(.*)@(.*)$')
  return {queue = queue, task_type = task_type, head = head, tail = tail, stamp = iso(now)}
end

-- Writes one. `about` names the job, its RQ queue and when it was enqueued.
local function write_job_task(common, task, about, seconds)
  local description, limit = string.sub(about.description or '', 1, 200), num(seconds)
  about.description = string.find(description, '[\128-\255]') and string.gsub(description, '[\128-\255]', '?') or description
  redis.call('HSET', keys.rq_job(task), 'state', 'pending', 'status', 'queued', 'origin', common.queue, 'description',
    common.task_type, 'data', common.head .. cjson.encode(about) .. common.tail, 'created_at', common.stamp,
    'enqueued_at', common.stamp, 'time_limit', limit, 'timeout', limit)
end
