-- @include _prelude
-- Takes a lock away from its holder, and records the actor and the reason.
-- ARGV: now, lock, token seen ("" for any holder), who, reason, microseconds for which the holder is blocked from taking
--   it again.
-- Returns {"unlocked", owner} or {"changed", token now ("" for free)}. Of several with one token one succeeds.
local lock, seen, bar = ARGV[2], ARGV[3], tonumber(ARGV[6])
local key = keys.lock(lock)
write_even_when_full()
local v = hash(key, 'token', 'until', 'owner')
-- Only the owner of a corrupt record has no name.
local owner = v.owner or '?'
local token = (v.token and (number_of(v['until']) or 0) > now) and v.token or ''
if token == '' or (seen ~= '' and seen ~= token) then return {'changed', token} end

-- The entry comes first: a step that fails there has taken nothing, and can be repeated.
redis.call('XADD', keys.AUDIT, 'MAXLEN', '~', 10000, '*', 'who', ARGV[4],
  'what', bar > 0 and 'stepped down' or 'unlocked', 'about', 'lock ' .. lock .. ' of ' .. owner .. ', token ' .. token,
  'detail', ARGV[5])
redis.call('DEL', key)
-- For a holder that notices it within the hour (`lock_ended`); dated back, so that it is in no list of recent losses.
local hour = 3600 * 1000000
redis.pcall('ZREMRANGEBYSCORE', keys.LOST_LOCKS, '-inf', num(now - 2 * hour))
redis.pcall('ZADD', keys.LOST_LOCKS, num(now - hour), token)
if bar > 0 then
  redis.call('HSET', key, 'blocked_owner', owner, 'until', num(now + bar))
  redis.call('PEXPIRE', key, num(math.ceil(bar / 1000) + 1))
end
return {'unlocked', owner}
