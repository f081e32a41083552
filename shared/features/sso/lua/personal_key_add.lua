-- @include _prelude
-- Adds a personal API key, and removes those that have expired. ARGV: now, id, the key (JSON: owner, expires_at, ...), its
-- owner, the most keys of an owner, the most keys of all. Returns 'added', 'own' (the owner has that many) or 'all'.
local held, of_owner, expired = 0, 0, {}
local stored = redis.call('HGETALL', keys.PERSONAL_KEYS)
for at = 1, #stored, 2 do
  local readable, key = pcall(cjson.decode, stored[at + 1])
  if not readable or type(key) ~= 'table' or (number_of(key.expires_at) or 0) <= now then
    expired[#expired + 1] = stored[at]
  else
    held = held + 1
    if key.owner == ARGV[4] then of_owner = of_owner + 1 end
  end
end
if #expired > 0 then redis.call('HDEL', keys.PERSONAL_KEYS, unpack(expired)) end
if of_owner >= tonumber(ARGV[5]) then return 'own' end
if held >= tonumber(ARGV[6]) then return 'all' end
redis.call('HSET', keys.PERSONAL_KEYS, ARGV[2], ARGV[3])
return 'added'
