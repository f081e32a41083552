-- @include _prelude _job_task _enqueue_job
-- Turns the jobs that RQ programs enqueued into one of their queues into tasks. Jobs of that queue whose scheduled time has
-- come are enqueued first, unless a scheduler of RQ has the lock of the queue: then it does that. So are jobs whose
-- dependencies have ended, if the process that was to enqueue them died.
-- ARGV: now, RQ's queue, the queue of the tasks, their type, their data as RQ's call with `@` in place of the data, the
--   most jobs that may be adopted and not ended, whether jobs are enqueued whose scheduled time has come (1 or 0), then
--   the ids of new tasks.
-- Returns how many jobs became tasks, -1 when none may for now. Their records stay RQ's own and unchanged.
local from, queue, task_type = ARGV[2], ARGV[3], ARGV[4]
-- A tenth of the bound is free for each queue: the workers that adopted the jobs of others may be gone.
local room = math.min(#ARGV - 7, math.max(ARGV[6] - redis.call('HLEN', keys.RQ_ADOPTED),
  math.floor(ARGV[6] / 10) - redis.call('ZCARD', keys.pending(queue))))
if redis.call('EXISTS', keys.RQ_SUSPENDED) == 1 then return 0 end
if room <= 0 then return -1 end
local list, common = keys.rq_queue(from), job_tasks(queue, task_type, ARGV[5])
-- Index entries of all adopted tasks, so that they cost the same few commands however many there are.
local tasks, times, places, adopted = {}, {}, {}, {}

local DEFAULT_TIMEOUT, UNLIMITED = 180, 2592000
local DEAR = 100 -- jobs that are due, ready or parked cost several commands each: not more in one call
local dear = math.min(room, DEAR)
local LEFT_BEHIND = 5 -- seconds after which a ready job is not about to be enqueued by the process that made it ready

-- Returns the seconds after which an executor is killed: RQ's own time limit, and the time for its callbacks.
local function time_limit(job)
  local seconds = number_of(job.timeout) or DEFAULT_TIMEOUT
  return seconds < 0 and UNLIMITED or seconds + CALLBACKS
end

-- The jobs adopted already, from `keys.RQ_ADOPTED`: a list of RQ may name a job twice.
local function adopted_before()
  local jobs, adoptions = {}, redis.call('HGETALL', keys.RQ_ADOPTED)
  for at = 2, #adoptions, 2 do jobs[adoptions[at]] = true end
  return jobs
end
local known

-- Returns a job; nil when the record is missing, or not RQ's.
local function job_of(id)
  local job = record(id, 'state', 'data', 'timeout', 'enqueued_at', 'description')
  if not job then return end
  if job.data and not job.state or is_foreign(id) then return job end
end

local function adopt(id, job)
  local task, enqueued_at = ARGV[8 + #tasks], job.enqueued_at or ''
  local enqueued = enqueued_at .. ' ' .. id
  known = known or adopted_before()
  if known[enqueued] then return end
  known[enqueued] = true
  local about = {job = id, queue = from, enqueued_at = enqueued_at, description = job.description}
  write_job_task(common, task, about, time_limit(job))
  local at = #times
  tasks[#tasks + 1] = task
  times[at + 1], times[at + 2] = NOW, task
  places[at + 1], places[at + 2] = num(now + at / 2), task
  adopted[at + 1], adopted[at + 2] = task, enqueued
end

local function enqueue_due()
  if redis.call('EXISTS', keys.rq_scheduler_lock(from)) == 1 then return end
  local due, seconds = keys.rq_scheduled(from), num(math.floor(now / 1000000))
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', due, '-inf', seconds, 'LIMIT', 0, dear)) do
    dear = dear - 1
    if not redis.call('ZSCORE', keys.TASKS, id) then
      if is_foreign(id) then enqueue_job(id, from) end
      redis.call('ZREM', due, id)
    end
  end
end

local function enqueue_ready()
  local ready, before = keys.rq_ready(from), num(math.floor(now / 1000000) - LEFT_BEHIND)
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', ready, '-inf', before, 'LIMIT', 0, dear)) do
    dear = dear - 1
    local job = record(id, 'status')
    if job and job.status == 'ready_to_enqueue' then enqueue_job(id, from) end
    redis.call('ZREM', ready, id)
  end
end

local function adopt_parked()
  for _, id in ipairs(redis.call('ZRANGE', keys.foreign(from), 0, math.min(room, DEAR) - 1)) do
    local job = waits_for_rq(id) and job_of(id)
    if job then adopt(id, job) end
    redis.call('ZREM', keys.foreign(from), id)
  end
end

-- Tasks of our own stay in the list; everything else leaves it.
local function adopt_listed()
  local ids = #tasks < room and redis.call('LRANGE', list, 0, room - #tasks - 1) or {}
  if #ids == 0 then return end
  local ours, left = redis.call('ZMSCORE', keys.TASKS, unpack(ids)), {}
  for at, id in ipairs(ids) do
    local job = not ours[at] and job_of(id)
    if job then adopt(id, job) end
    if ours[at] then table.insert(left, 1, id) end
  end
  redis.call('LTRIM', list, #ids, -1)
  if #left > 0 then redis.call('LPUSH', list, unpack(left)) end
end

if ARGV[7] == '1' then enqueue_due() end
enqueue_ready()
adopt_parked()
adopt_listed()
if #tasks == 0 then return 0 end
redis.call('ZADD', keys.TASKS, unpack(times))
redis.call('ZADD', keys.tasks_of_type(task_type), unpack(times))
redis.call('HSET', keys.RQ_ADOPTED, unpack(adopted))
redis.call('ZADD', keys.pending(queue), unpack(places))
redis.call('RPUSH', keys.rq_queue(queue), unpack(tasks))
list_lane(queue, tasks[1])
notify_workers(#tasks, queue)
count('submitted', #tasks)
return #tasks
