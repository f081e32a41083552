-- Where the next page of an index begins, for all that show one newest first. Entries of one score stand in the order
-- of their ids, and a caller may give a million tasks one score (`run_at`): nobody reads over what was shown already.

-- Whether an id stands before another, byte by byte as in an index; Lua's own < goes by the language of the server.
local function precedes(a, b)
  for at = 1, math.min(#a, #b) do
    local x, y = string.byte(a, at, at), string.byte(b, at, at)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- How many entries stand in front of the first one behind (score, id), which need not be there any more. The place
-- among those of its score is found by halving: 20 looks for a million.
local function place_behind(key, score, id)
  local first = redis.call('ZCOUNT', key, '(' .. score, '+inf')
  local behind = first + redis.call('ZCOUNT', key, score, score)
  while first < behind do
    local middle = math.floor((first + behind) / 2)
    if precedes(redis.call('ZREVRANGE', key, middle, middle)[1], id) then behind = middle else first = middle + 1 end
  end
  return first
end
