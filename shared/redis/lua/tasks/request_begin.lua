-- @include _prelude
-- Takes the idempotency key of a request of several steps, for as long as the request is alive.
-- ARGV: now, digest of the key, fingerprint of the request, the caller (new for each request), how long it may be silent
--   in microseconds, how long the answer is kept in milliseconds, seed (for the ids of its tasks), its selection
--   (JSON, "" for none yet), and "1" for a request whose tasks belong to this store, even if it is draining.
-- Returns {"begun", seed} for the first, {"resumed", seed} where the key existed (the first one's seed, so that a resumed
--   request stores the same tasks), {"again", answer}, {"busy", seconds until the next try} or {"other", ""}. A resumed
--   request that had selected something brings that as a third.
--   Called again by the same caller, its life is extended.
local key, who = keys.idempotency(ARGV[2]), ARGV[4]
local v = hash(key, 'fingerprint', 'answer', 'who', 'until', 'seed', 'selected')
if v.fingerprint and v.fingerprint ~= ARGV[3] then return {'other', ''} end
if v.answer then return {'again', v.answer} end
local alive = (number_of(v['until']) or 0) > now
if alive and v.who ~= who then return {'busy', num(math.ceil((tonumber(v['until']) - now) / 1000000))} end
if not v.fingerprint and ARGV[9] ~= '1' then demand_active() end
local seed = v.seed or ARGV[7]
redis.call('HSET', key, 'fingerprint', ARGV[3], 'who', who, 'until', num(now + tonumber(ARGV[5])), 'seed', seed)
redis.call('PEXPIRE', key, ARGV[6])
if ARGV[8] ~= '' then redis.call('HSETNX', key, 'selected', ARGV[8]) end
return {v.fingerprint and 'resumed' or 'begun', seed, v.selected}
