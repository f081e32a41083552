-- Cancels a task: a waiting one at once, a running one by asking its worker to stop it.
-- ARGV: now, id, reason.
-- Returns {state found, what happened}: "cancelled", "requested", "ended" (nothing to cancel) or "unknown".
local id, reason = ARGV[2], ARGV[3]
write_even_when_full()
local v = fields(id, 'state', 'origin', 'worker_name')
if not v or not v[1] then return {'', 'unknown'} end
local state, queue = v[1], v[2]

if state == 'running' then
  redis.call('HSET', job_key(id), 'cancel', reason)
  local control = 'taskqueue:control:' .. (v[3] or '')
  redis.call('RPUSH', control, 'cancel ' .. id)
  redis.call('EXPIRE', control, 3600)
  return {state, 'requested'}
end
if not (state == 'pending' or state == 'scheduled' or state == 'retrying' or state == 'blocked') then
  return {state, state == 'cancelled' and 'cancelled' or 'ended'}
end
leave(id, state, queue, '')
redis.call('ZREM', DEADLINES, id)
redis.call('HSET', job_key(id), 'state', 'cancelled', 'status', 'canceled', 'cancel', reason, 'ended_at', iso(now))
enter_ended(id, 'cancelled', queue)
count('cancelled', 1)
return {state, 'cancelled'}
