-- The start of the next page of an index, newest first. Entries of one score are in the order of their ids, and a caller
-- may give a million tasks one score (`run_at`), so entries already shown are skipped without reading them.

-- Returns whether an id precedes another, byte by byte as in an index; Lua's own < depends on the server's locale.
local function precedes(a, b)
  for at = 1, math.min(#a, #b) do
    local x, y = string.byte(a, at, at), string.byte(b, at, at)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- Returns how many entries precede the first one after (score, id), which may be removed since. The place among those
-- of its score is found by bisection: 20 reads for a million.
local function place_behind(key, score, id)
  local first = redis.call('ZCOUNT', key, '(' .. score, '+inf')
  local behind = first + redis.call('ZCOUNT', key, score, score)
  while first < behind do
    local middle = math.floor((first + behind) / 2)
    if precedes(redis.call('ZREVRANGE', key, middle, middle)[1], id) then behind = middle else first = middle + 1 end
  end
  return first
end
