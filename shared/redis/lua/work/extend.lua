-- @include _prelude
-- Extends leases, and returns which are lost or to be cancelled.
-- ARGV: now, lease in microseconds, then four per task: id, token, "1" when its handler has begun (else "0"),
--   progress (JSON, "" when there is nothing new).
-- Returns per task: 0 extended, 1 lost (the holder must stop), 2 extended, but to be cancelled.
local until_ = num(now + tonumber(ARGV[2]))
write_even_when_full()
local answer = {}

local function extend(id, token, begun, progress)
  local t = record(id, 'token', 'state', 'begun', 'cancel')
  if not t or t.token ~= token or t.state ~= 'running' then return 1 end
  redis.call('ZADD', keys.LEASES, until_, id)
  if begun == '1' and t.begun ~= token then redis.call('HSET', keys.rq_job(id), 'begun', token) end
  if progress ~= '' then redis.call('HSET', keys.rq_job(id), 'progress', progress) end
  return t.cancel and 2 or 0
end

for at = 3, #ARGV, 4 do
  answer[#answer + 1] = extend(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3])
end
return answer
