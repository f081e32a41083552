-- @include _prelude _webhooks _relations
-- Expires waiting tasks whose start deadline has passed.
-- ARGV: now, how many at most, lock and token of the caller. Returns how many expired.
if lock_ended(ARGV[3], ARGV[4]) then return LOCK_ENDED end
local expired = 0
write_even_when_full()
local ids = redis.call('ZRANGEBYSCORE', keys.DEADLINES, '-inf', NOW, 'LIMIT', 0, tonumber(ARGV[2]))
for _, id in ipairs(ids) do
  local t = record(id, 'state', 'origin')
  if t and t.origin and WAITING[t.state] then
    transition(id, t.state, 'expired', t.origin)
    expired = expired + 1
    moved(id, t.state, 'expired')
  else
    redis.call('ZREM', keys.DEADLINES, id)
  end
end
count('expired', expired)
return expired
