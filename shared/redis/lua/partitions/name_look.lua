-- @include _prelude
-- Looks for the holder of a name in a partition, and notes for seconds where the next one is stored, in the same step.
-- ARGV: now, "unique" or "key", the unique key or the digest of the Idempotency-Key, the note: ">" in a partition that
--   may have had the name before the one that is to have it now; "<" in that one, once all others were asked. Their
--   notes last for 30 s and this one for 5 s. It is made at most 15 s after the first of theirs (`NameSearch`), so that
--   it ends before them.
-- Returns "held" when a task or a request has the name here; "elsewhere" when "<" is wanted and ">" is noted; else what
--   the partition takes (`demand_place`), and it is noted.
local kind, name, note = ARGV[2], ARGV[3], ARGV[4]
local key = kind == 'key' and keys.idempotency(name) or keys.unique_for(name)
local held, known
if kind == 'key' then
  local v = hash(key, 'fingerprint', 'note')
  held, known = v.fingerprint, v.note
else
  local holder, _, noted = unique_holder(name)
  held, known = holder, noted
end
if held then return 'held' end
if note == NOTE.here and known == NOTE.there then return 'elsewhere' end
local time = note == NOTE.here and 5000 or 30000
if kind == 'key' then
  redis.call('HSET', key, 'note', note)
  redis.call('PEXPIRE', key, time)
else redis.call('SET', key, note, 'PX', time) end
return string.sub(placement, #FORMAT + 2)
