-- Takes note of the limits that handlers and settings declare. ARGV: now, then name and limit (JSON, "" for none) in turns.
-- Returns how many changed.
local names, texts, changed = {}, {}, 0
for at = 2, #ARGV, 2 do
  names[#names + 1], texts[#texts + 1] = ARGV[at], ARGV[at + 1]
end
local declared, set = redis.call('HMGET', DECLARED, unpack(names)), redis.call('HMGET', LIMITS, unpack(names))
for i, name in ipairs(names) do
  local text = texts[i]
  if (declared[i] or '') ~= text then
    changed = changed + 1
    if text == '' then redis.call('HDEL', DECLARED, name) else redis.call('HSET', DECLARED, name, text) end
  end
  local by_hand = set[i] and cjson.decode(set[i]).source == 'api'
  if not by_hand and (set[i] or text ~= '') then set_limit(name, text) end
end
return changed
