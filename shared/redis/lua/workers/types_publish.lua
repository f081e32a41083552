-- @include _prelude _types
-- Stores a part of a worker's set of task types: each version once, for all workers.
-- ARGV: now, digest of the set, host, "1" with the last part ("" before), then repeated name, version and entry (JSON).
local set = ARGV[2]
write_even_when_full()
redis.call('ZADD', keys.TYPE_SETS, NOW, set)
local versions, entries = {}, {}
for at = 5, #ARGV, 3 do
  versions[#versions + 1], versions[#versions + 2] = ARGV[at], ARGV[at + 1]
  entries[#entries + 1], entries[#entries + 2] = ARGV[at + 1], ARGV[at + 2]
end
if #entries > 0 then
  redis.call('HSET', keys.type_set(set), unpack(versions))
  redis.call('HSET', keys.TYPE_VERSIONS, unpack(entries))
end
if ARGV[4] == '1' then
  redis.call('HSET', keys.type_set(set), '@host', ARGV[3])
  redis.call('HSETNX', keys.type_set(set), '@first', NOW)
end
return 1
