-- @include _prelude
-- Takes a free lock. Repeated with the same nonce it gives the same answer: a lost answer is harmless.
-- ARGV: now, lock, nonce (new for each try), owner, life in microseconds, cooldown in microseconds (for how long no other
--   owner gets it, even if it is released sooner), thread of the owner, microseconds without a renewal after which
--   another owner may take it (0: not before its life ends).
-- Returns {"acquired", token, microseconds of life} or {"busy" | "cooldown" | "blocked", owner}, or {"full", ""} for a new
-- name when the maximum is reached: the fencing number of each is kept permanently.
-- The token is the fencing number and the nonce. The number only grows, also after a restore of Redis from an older
-- file, because it is never below the time in milliseconds; the nonce makes the token unique even then.
local lock, nonce, owner, life, rest = ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
local silence = tonumber(ARGV[8]) or 0
-- A time further away than any request is from before Redis' clock was set back, and is ignored.
local function holds(moment, span)
  local left = (number_of(moment) or 0) - now
  return left > 0 and left <= 10 * span
end

local key = keys.lock(lock)
write_even_when_full()
local v = hash(key, 'token', 'until', 'owner', 'cooldown_until', 'blocked_owner', 'renew_by')
if holds(v['until'], math.max(life, rest)) then
  local token = v.token or ''
  if token ~= '' and string.sub(token, -#nonce) == nonce then
    return {'acquired', token, num(tonumber(v['until']) - now)}
  end
  -- A holder that did not renew in time is dead once another one tries; until then a slow one can renew late.
  local silent = silence > 0 and v.renew_by and not holds(v.renew_by, silence)
  if token ~= '' and not silent then return {'busy', v.owner or ''} end
  if holds(v.cooldown_until, rest) then return {'cooldown', ''} end
  if v.blocked_owner == owner then return {'blocked', ''} end
end

if redis.call('HLEN', keys.LOCK_FENCES) >= 1000 and redis.call('HEXISTS', keys.LOCK_FENCES, lock) == 0 then return {'full', ''} end
local fence = math.max((number_of(redis.call('HGET', keys.LOCK_FENCES, lock)) or 0) + 1, math.floor(now / 1000))
local token = num(fence) .. ':' .. nonce
redis.call('HSET', keys.LOCK_FENCES, lock, num(fence))
redis.call('DEL', key)
redis.call('HSET', key, 'token', token, 'owner', owner, 'fence', num(fence), 'acquired_at', NOW,
  'until', num(now + life), 'cooldown_until', num(now + rest), 'thread', ARGV[7])
if silence > 0 then redis.call('HSET', key, 'renew_by', num(now + silence)) end
redis.call('PEXPIRE', key, num(math.ceil(life / 1000) + 1))
return {'acquired', token, num(life)}
