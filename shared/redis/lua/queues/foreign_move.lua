-- @include _prelude
-- Moves parked foreign jobs to the end of the list of a queue that RQ's workers serve, in their order.
-- ARGV: now, queue that they were found in, queue to put them into, how many at most.
-- Returns how many were moved, and how many were examined: jobs that RQ removed, cancelled or ran since are dropped.
write_even_when_full()
local foreign, to = keys.foreign(ARGV[2]), ARGV[3]
local list, moved = keys.rq_queue(to), 0
local ids = redis.call('ZRANGE', foreign, 0, tonumber(ARGV[4]) - 1)
for _, id in ipairs(ids) do
  if waits_for_rq(id) then
    redis.call('HSET', keys.rq_job(id), 'origin', to)
    redis.call('RPUSH', list, id)
    moved = moved + 1
  end
  redis.call('ZREM', foreign, id)
end
if moved > 0 then redis.call('SADD', keys.RQ_QUEUES, list) end
return {moved, #ids}
