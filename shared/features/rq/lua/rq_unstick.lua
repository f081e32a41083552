-- @include _prelude
-- Returns jobs that a killed RQ worker had taken and not begun to the front of their queue. No RQ worker may serve it.
-- ARGV: now, RQ's queue.
-- Returns how many.
local list, returned = keys.rq_queue(ARGV[2]), 0
local taken = keys.rq_queue(ARGV[2] .. ':intermediate')
write_even_when_full()
local ids = redis.pcall('LRANGE', taken, 0, 99)
for _, id in ipairs(ids.err and {} or ids) do
  local job = record(id, 'status')
  if job and job.status == 'queued' then
    redis.call('LREM', list, 1, id)
    redis.call('LPUSH', list, id)
    returned = returned + 1
  end
  if not job or job.status == 'queued' or not job.status then redis.call('LREM', taken, 1, id) end
end
return returned
