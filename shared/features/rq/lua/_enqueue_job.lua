-- Enqueues jobs of RQ programs as RQ's own code does, for `rq_adopt.lua`.

local function push_job(id, queue, at_front)
  redis.call('HSET', keys.rq_job(id), 'status', 'queued', 'enqueued_at', iso(now))
  redis.call(at_front == '1' and 'LPUSH' or 'RPUSH', keys.rq_queue(queue), id)
end

-- Gives free slots of a rate limit to jobs that wait for one, the oldest first, at most to so many. Keys of another type
-- are left alone.
local function fill_slots(limit, slots, most)
  local allowed, waiting = keys.rq_rate_limit(limit .. ':allowed'), keys.rq_rate_limit(limit .. ':rate_limited')
  local taken = redis.pcall('ZCARD', allowed)
  for _ = 1, math.min(most, type(taken) == 'number' and slots - taken or 0) do
    local id = redis.pcall('ZPOPMIN', waiting)[1]
    if not id then return end
    local job = record(id, 'status', 'origin', 'enqueue_at_front')
    if job and job.status == 'rate_limited' and job.origin then
      redis.call('ZADD', allowed, num(now / 1000000), id)
      push_job(id, job.origin, job.enqueue_at_front)
    end
  end
end

-- Enqueues a job whose time has come or whose dependencies have ended; one with a rate limit when it has a slot.
local function enqueue_job(id, queue)
  local job = record(id, 'enqueue_at_front', 'rate_limit_key', 'rate_limit_concurrency')
  local limit, slots = job.rate_limit_key, number_of(job.rate_limit_concurrency or '')
  if not limit or limit == '' or not slots then return push_job(id, queue, job.enqueue_at_front) end
  local waits = redis.pcall('ZADD', keys.rq_rate_limit(limit .. ':rate_limited'), num(now / 1000000), id)
  if type(waits) ~= 'number' then return push_job(id, queue, job.enqueue_at_front) end
  redis.call('HSET', keys.rq_job(id), 'status', 'rate_limited')
  redis.pcall('SADD', keys.RQ_RATE_LIMITS, limit)
  redis.pcall('HSET', keys.rq_rate_limit(limit), 'concurrency', num(slots))
  fill_slots(limit, slots, 2)
end
