-- @include _prelude
-- Removes notices that were delivered, unless their tasks have ended once more since.
-- ARGV: now, the number of the partition that has them, then per notice: the id of the task, its score when it was read.
write_even_when_full()
local key = keys.notices(ARGV[2])
for at = 3, #ARGV, 2 do
  if redis.call('ZSCORE', key, ARGV[at]) == ARGV[at + 1] then redis.call('ZREM', key, ARGV[at]) end
end
