-- @include _prelude
-- Reads some causes of dead letters, the commonest first, each with what the latest one died of; changes nothing.
-- ARGV: now (not used), which cause ("" for all), how many causes to pass over, how many to return.
-- Returns {how many causes there are, one list per cause that has dead letters: its key, how many, when the cause was
--   first seen and when the last died, type and error of the last ("" where its record cannot be read)}.
-- Every answer comes off an end or a count of an index, so it costs the same with ten dead letters or a million.
local CAUSES = 'taskqueue:causes'
local answer = {redis.call('ZCARD', CAUSES)}

local function describe(cause)
  local key = 'taskqueue:cause:' .. cause
  local first = redis.call('ZRANGE', key, 0, 0, 'WITHSCORES')
  local last = redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')
  if #first == 0 then return end
  local v = fields(last[1], 'description', 'error') or {}
  local seen = redis.pcall('GET', 'taskqueue:first-seen:' .. cause)
  local since = type(seen) == 'string' and number_of(seen)
  if since and since < tonumber(first[2]) then first[2] = seen end
  answer[#answer + 1] = {cause, redis.call('ZCARD', key), first[2], last[2], v[1] or '', v[2] or ''}
end

if ARGV[2] ~= '' then
  describe(ARGV[2])
else
  local first = tonumber(ARGV[3])
  for _, cause in ipairs(redis.call('ZREVRANGE', CAUSES, first, first + tonumber(ARGV[4]) - 1)) do describe(cause) end
end
return answer
