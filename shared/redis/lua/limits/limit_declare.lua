-- @include _prelude _limits _limit_changes
-- Takes note of the limits that handlers and settings declare.
-- ARGV: now, "1" for a first word ("" for a repeated one), then name and limit (JSON, "" for none) in turns.
-- The last first word counts: of two versions that declare different limits the one that started last has its way, and
-- what the other repeats as a sign of life only fills in what is not there, as when Redis came back empty.
-- Returns the names of those whose limit is another than was said here, and that limit, in turns.
write_even_when_full()
local names, texts, others = {}, {}, {}
for at = 3, #ARGV, 2 do
  names[#names + 1], texts[#texts + 1] = ARGV[at], ARGV[at + 1]
end
local declared, set = redis.call('HMGET', DECLARED, unpack(names)), redis.call('HMGET', LIMITS, unpack(names))
for i, name in ipairs(names) do
  local text, before = texts[i], declared[i]
  if ARGV[2] == '1' or not before then
    -- "None" is noted only where it contradicts somebody.
    if text ~= '' or before then redis.call('HSET', DECLARED, name, text) end
  elseif before ~= text then
    others[#others + 1], others[#others + 2] = name, before
    text = before
  end
  local by_hand = set[i] and cjson.decode(set[i]).source == 'api'
  if not by_hand and (set[i] or text ~= '') then set_limit(name, text) end
end
return others
