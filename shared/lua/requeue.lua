-- Sends dead letters back to their queues with all their retries; their history stays.
-- ARGV: now, then the ids. Returns per task {state found ("" for unknown), 1 when it was requeued}.
local stamp = iso(now)
local answer, wake = {}, 0
for at = 2, #ARGV do
  local id = ARGV[at]
  local v = fields(id, 'state', 'origin', 'data', 'description')
  local state = v and v[1] or ''
  local ready = state == 'failed' and v[2] and v[3] and v[4]
  if ready then
    leave(id, 'failed', v[2], '')
    redis.call('HDEL', job_key(id), 'failures', 'crashes', 'losses', 'ended_at', 'begun', 'cancel', 'progress',
      'expires_at', 'due_at')
    redis.call('HSET', job_key(id), 'state', 'pending', 'status', 'queued', 'enqueued_at', stamp, 'token', '')
    hold_unique_again(id, {start = true, ['end'] = true})
    redis.call('RPUSH', 'rq:queue:' .. v[2], id)
    redis.call('ZADD', 'taskqueue:pending:' .. v[2], NOW, id)
    wake = wake + 1
  end
  answer[#answer + 1] = {state, ready and 1 or 0}
end
ring(wake)
count('requeued', wake)
return answer
