-- @include _prelude
-- Reads some groups of dead letters, the most frequent first, each with its latest failure; changes nothing.
-- ARGV: now (not used), which group ("" for all), how many groups to skip, how many to return.
-- Returns {how many groups there are, one list per group with dead letters: its key, how many, when it was first seen
--   and when the last failed, type and error of the last ("" where its record is corrupt)}.
-- Every answer is read from an end or a count of an index, so it costs the same with ten dead letters or a million.
local answer = {redis.call('ZCARD', keys.FAILURE_GROUPS)}

local function describe(cause)
  local key = keys.failure_group(cause)
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if #first == 0 then return end
  local t = record(last[1], 'description', 'error') or {}
  local seen = redis.pcall('GET', keys.first_seen(cause))
  local since = type(seen) == 'string' and number_of(seen)
  if since and since < tonumber(first[2]) then first[2] = seen end
  answer[#answer + 1] = {cause, redis.call('ZCARD', key), first[2], last[2], t.description or '', t.error or ''}
end

if ARGV[2] ~= '' then
  describe(ARGV[2])
else
  local first = tonumber(ARGV[3])
  for _, cause in ipairs(redis.call('ZREVRANGE', keys.FAILURE_GROUPS, first, first + tonumber(ARGV[4]) - 1)) do describe(cause) end
end
return answer
