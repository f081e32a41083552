-- @include _prelude _webhooks _relations
-- Expires waiting tasks whose start deadline has passed.
-- ARGV: now, how many at most, lock and token of the caller. Returns how many expired.
if lock_ended(ARGV[3], ARGV[4]) then return LOCK_ENDED end
local expired = 0
write_even_when_full()
local ids = redis.call('ZRANGEBYSCORE', keys.DEADLINES, '-inf', NOW, 'LIMIT', 0, tonumber(ARGV[2]))
for _, id in ipairs(ids) do
  redis.call('ZREM', keys.DEADLINES, id)
  local t = record(id, 'state', 'origin')
  local state = t and t.state
  if state == 'pending' or state == 'scheduled' or state == 'retrying' or state == 'blocked' then
    leave(id, state, t.origin, '')
    redis.call('HSET', keys.rq_job(id), 'state', 'expired', 'status', 'canceled', 'ended_at', iso(now))
    enter_ended(id, 'expired', t.origin)
    expired = expired + 1
    moved(id, state, 'expired')
  end
end
count('expired', expired)
return expired
