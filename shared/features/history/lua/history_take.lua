-- @include _prelude
-- Reads the oldest ends that are not in the history yet, and marks the history as present, so that ends are registered.
-- ARGV: now, how many at most, lock and token of the caller, how many ends may wait, for how many seconds ends are
--   registered from now on, the error of the last run ("" for none).
-- Returns per end {member of the index, its score, the record as alternating names and values ("" when it cannot be read),
--   the result for RQ ("" when there is none)}.
if lock_ended(ARGV[3], ARGV[4]) then return LOCK_ENDED end
write_even_when_full()
redis.call('HSET', keys.HISTORY, 'most', ARGV[5], 'error', ARGV[7], 'checked_at', NOW)
redis.call('EXPIRE', keys.HISTORY, ARGV[6])
local MOST_BYTES = 4194304 -- then an answer ends early: records may be large
local answer, bytes = {}, 0
local ends = redis.call('ZRANGE', keys.UNARCHIVED, 0, tonumber(ARGV[2]) - 1, 'WITHSCORES')
for at = 1, #ends, 2 do
  if bytes > MOST_BYTES then break end
  local member = ends[at]
  local kept = string.find(member, '|', 1, true)
  local fields = redis.pcall('HGETALL', kept and keys.kept_end(member) or keys.rq_job(member))
  local result = not kept and result_of(member) or ''
  bytes = bytes + #result
  for _, value in ipairs(fields) do bytes = bytes + #value end
  answer[#answer + 1] = {member, ends[at + 1], fields.err and '' or fields, result}
end
return answer
