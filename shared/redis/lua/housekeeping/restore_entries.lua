-- @include _prelude _restore
-- Restores queue entries of tasks, in front of all others and in the given order.
-- The search for them may be outdated: only a task that is still pending, for longer than the grace, gets an entry.
-- ARGV: now, queue, grace in microseconds, lock and token of the caller, ids (at most 1,000).
-- Returns how many entries were restored.
local queue = ARGV[2]
if lock_ended(ARGV[4], ARGV[5]) then return LOCK_ENDED end
write_even_when_full()
local oldest = now - tonumber(ARGV[3])
local scores, entries = redis.call('ZMSCORE', keys.pending(queue), unpack(ARGV, 6)), {}
for at = 1, #scores do
  if scores[at] and tonumber(scores[at]) <= oldest then entries[#entries + 1] = ARGV[at + 5] end
end
restore_entries(queue, entries)
return #entries
