-- The end of an RQ job, for `report.lua`.

-- Returns an instant in RQ's format; instants of one second share most of it.
local seconds_written = {}
local function stamp_of(us)
  local second = math.floor(us / 1000000)
  seconds_written[second] = seconds_written[second] or string.sub(iso(second * 1000000), 1, 20)
  return seconds_written[second] .. string.format('%06dZ', us - second * 1000000)
end

-- Writes the same to an RQ job as RQ's worker after a success, unless it was deleted or enqueued again.
-- `job_end` has the fields of `RQJobEnd` in JSON (`worker/features/rq/job_end.py`).
-- Returns true when other jobs depend on it: then its task has to run again, to enqueue these.
local function end_job(worker, task, job_end)
  local enqueued_at, id = string.match(redis.call('HGET', keys.RQ_ADOPTED, task) or '', '^(%S*) (.*)$')
  local e = cjson.decode(job_end)
  local job = not e.written_by_rq and id and record(id, 'status', 'enqueued_at', 'origin')
  if not job or not job.status or not job.origin or (job.enqueued_at or '') ~= enqueued_at then
    redis.call('HDEL', keys.RQ_ADOPTED, task)
    return false
  end
  local key, results, stamp, seconds = keys.rq_job(id), keys.rq_results(id), stamp_of(e.ended_us), e.result_ttl
  redis.call('HSET', key, 'status', 'finished', 'started_at', stamp_of(e.began_us), 'ended_at', stamp,
    'last_heartbeat', stamp, 'worker_name', worker)
  local result = {'type', '1', 'worker_name', worker, 'execution_id', e.execution,
    'execution_started_at', string.format('%.6f', e.began_us / 1000000),
    'execution_ended_at', string.format('%.6f', e.ended_us / 1000000)}
  if e.value then result[#result + 1], result[#result + 2] = 'return_value', e.value end
  redis.pcall('XADD', results, 'MAXLEN', '~', 10, '*', unpack(result))
  if seconds < 0 then
    redis.call('PERSIST', key)
    redis.call('PERSIST', results)
  else
    redis.call('EXPIRE', key, num(seconds))
    redis.call('EXPIRE', results, num(seconds))
  end
  local until_ = seconds < 0 and '+inf' or num(math.floor(now / 1000000) + seconds)
  redis.call('ZADD', keys.rq_finished(job.origin), until_, id)
  if e.registered then
    redis.call('DEL', keys.rq_execution(id .. ':' .. e.execution))
    redis.call('ZREM', keys.rq_executions(id), e.execution)
    redis.call('ZREM', keys.rq_started(job.origin), id .. ':' .. e.execution)
    redis.call('SREM', keys.rq_worker(worker .. ':executions'), id .. ':' .. e.execution)
  end
  if redis.call('EXISTS', keys.rq_job(id .. ':dependents')) == 1 then return true end
  redis.call('HDEL', keys.RQ_ADOPTED, task)
  return false
end
