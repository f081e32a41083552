-- Takes note of the limits that handlers and settings declare. ARGV: now, then name and limit (JSON, "" for none) in turns.
-- Returns how many changed.
local changed = 0
for at = 2, #ARGV, 2 do
  local name, text = ARGV[at], ARGV[at + 1]
  if (redis.call('HGET', DECLARED, name) or '') ~= text then
    changed = changed + 1
    if text == '' then redis.call('HDEL', DECLARED, name) else redis.call('HSET', DECLARED, name, text) end
  end
  local set = redis.call('HGET', LIMITS, name)
  if not (set and cjson.decode(set).source == 'api') then set_limit(name, text) end
end
return changed
