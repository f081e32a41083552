-- @include _prelude
-- Returns adopted jobs that did not start to the front of their RQ queues, in their order, and removes their
-- tasks.
-- ARGV: now, how many at most.
-- Returns how many were returned.
write_even_when_full()
local waiting = {}
for _, task in ipairs(redis.call('HKEYS', keys.RQ_ADOPTED)) do
  local state, queue, attempt = record_values(task, 'state', 'origin', 'attempt')
  local place = state == 'pending' and not attempt and tonumber(redis.call('ZSCORE', keys.pending(queue), task))
  if place then waiting[#waiting + 1] = {task = task, queue = queue, place = place} end
end
-- From the last one on, so that they keep their order when several calls return all of them.
table.sort(waiting, function(a, b) return a.place > b.place end)
local most = math.min(#waiting, tonumber(ARGV[2]))
for at = 1, most do
  local each = waiting[at]
  local id = string.match(redis.call('HGET', keys.RQ_ADOPTED, each.task), '^%S* (.*)$')
  local job = record(id, 'origin')
  if job and job.origin and waits_for_rq(id) then redis.call('LPUSH', keys.rq_queue(job.origin), id) end
  redis.call('LREM', keys.rq_queue(each.queue), 1, each.task)
  remove(each.task, 'pending', each.queue, '')
  redis.call('HDEL', keys.RQ_ADOPTED, each.task)
end
return most
