-- @include _prelude _paging _filter _bulk
-- Counts some tasks that a bulk action would take; changes nothing.
-- ARGV: now (not used), the filter (JSON), the place to continue at (index, score, id; 1, "" and "" at the beginning),
--   how many to examine.
-- Returns {how many match, how many were examined, 1 when these were the last, the next place}.
local wanted = read_wanted(ARGV[2])
local place = {at = tonumber(ARGV[3]), score = ARGV[4], id = ARGV[5]}
local found = 0
local looked, last = examine(place, wanted, tonumber(ARGV[6]), function()
  found = found + 1
  return true
end)
return {found, looked, last and 1 or 0, place.at, place.score, place.id}
