-- @include _prelude _limits _limit_changes
-- Records the limits that handlers and settings declare.
-- ARGV: now, "1" for a first declaration ("" for a repeated one), then alternating name and limit (JSON, "" for none).
-- The last first declaration counts: of two versions with different limits the one that started last wins, and
-- limits that the other repeats with its heartbeat only fill gaps, as after Redis came back empty.
-- Returns alternating the names of limits that differ from the declared ones, and those limits.
write_even_when_full()
local names, texts, others = {}, {}, {}
for at = 3, #ARGV, 2 do
  names[#names + 1], texts[#texts + 1] = ARGV[at], ARGV[at + 1]
end
local declared, set = redis.call('HMGET', keys.LIMITS_DECLARED, unpack(names)), redis.call('HMGET', keys.LIMITS, unpack(names))
for i, name in ipairs(names) do
  local text, before = texts[i], declared[i]
  if ARGV[2] == '1' or not before then
    -- "None" is recorded only where it contradicts a declaration.
    if text ~= '' or before then redis.call('HSET', keys.LIMITS_DECLARED, name, text) end
  elseif before ~= text then
    others[#others + 1], others[#others + 2] = name, before
    text = before
  end
  local by_hand = set[i] and cjson.decode(set[i]).source == 'api'
  if not by_hand and (set[i] or text ~= '') then set_limit(name, text) end
end
return others
