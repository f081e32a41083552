-- @include _prelude _enqueue_job
-- Frees slots of RQ's rate limits that no job holds any more, because it has ended, was deleted or its process died, and
-- gives free slots to the jobs that wait for one. RQ 3 does the same at the end of a job; other versions do not.
-- ARGV: now, how many rate limits to look at: others the next time.
-- Returns how many were looked at.
local MOST = 20 -- slots of a rate limit that one call looks at, and that it fills

write_even_when_full()

local function holds_slot(id)
  local job = record(id, 'status')
  if job and (job.status == 'queued' or job.status == 'started') then return true end
  local running = redis.pcall('ZCOUNT', keys.rq_executions(id), '(' .. num(now / 1000000), '+inf')
  return type(running) == 'number' and running > 0
end

local limits = redis.pcall('SRANDMEMBER', keys.RQ_RATE_LIMITS, ARGV[2])
for _, limit in ipairs(limits.err and {} or limits) do
  local allowed, config = keys.rq_rate_limit(limit .. ':allowed'), keys.rq_rate_limit(limit)
  local ids = redis.pcall('ZRANDMEMBER', allowed, MOST)
  for _, id in ipairs(ids.err and {} or ids) do
    if not holds_slot(id) then redis.call('ZREM', allowed, id) end
  end
  local slots = redis.pcall('HGET', config, 'concurrency')
  if type(slots) == 'string' and number_of(slots) then fill_slots(limit, number_of(slots), MOST) end
  if redis.call('EXISTS', allowed, keys.rq_rate_limit(limit .. ':rate_limited')) == 0 then
    redis.call('SREM', keys.RQ_RATE_LIMITS, limit)
    redis.call('DEL', config)
  end
end
return #limits
