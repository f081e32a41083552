-- @include _prelude
-- Removes ends that are in the history from the waiting ones. ARGV: now, lock and token of the caller, then members and
-- their scores. A task that was requeued and ended again meanwhile has another score: that end stays.
-- Returns how many were removed.
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
write_even_when_full()
local removed = 0
for at = 4, #ARGV, 2 do
  local member = ARGV[at]
  if redis.call('ZSCORE', keys.UNARCHIVED, member) == ARGV[at + 1] then
    redis.call('ZREM', keys.UNARCHIVED, member)
    redis.call('UNLINK', keys.kept_end(member))
    removed = removed + 1
  end
end
return removed
