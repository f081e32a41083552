-- @include _prelude _types
-- Removes sets of task types that no worker has had for too long, and the versions that are in no other set.
-- ARGV: now, lock and token of the caller, for how long a set is kept in microseconds, how many types to remove at most.
-- Returns how many types were removed. A set that is published again meanwhile is complete again.
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
write_even_when_full()
local most, removed = tonumber(ARGV[5]), 0

local function part_of(set)
  local rows, names, versions = redis.call('HSCAN', keys.type_set(set), '0', 'COUNT', most)[2], {}, {}
  for at = 1, math.min(#rows, 2 * most), 2 do
    names[#names + 1], versions[#versions + 1] = rows[at], rows[at + 1]
  end
  return names, versions
end

-- Returns the versions among these that are in no other set.
local function in_no_other(set, names, versions)
  local kept, left = {}, {}
  for _, other in ipairs(redis.call('ZREVRANGE', keys.TYPE_SETS, 0, -1)) do
    if other ~= set then
      for at, version in ipairs(redis.call('HMGET', keys.type_set(other), unpack(names))) do
        if version == versions[at] then kept[version] = true end
      end
    end
  end
  for _, version in ipairs(versions) do
    if not kept[version] then left[#left + 1] = version end
  end
  return left
end

for _, set in ipairs(redis.call('ZRANGEBYSCORE', keys.TYPE_SETS, '-inf', num(now - tonumber(ARGV[4])), 'LIMIT', 0, 1)) do
  redis.call('HDEL', keys.type_set(set), '@first', '@host')
  local names, versions = part_of(set)
  if #names > 0 then
    local left = in_no_other(set, names, versions)
    if #left > 0 then redis.call('HDEL', keys.TYPE_VERSIONS, unpack(left)) end
    redis.call('HDEL', keys.type_set(set), unpack(names))
    removed = #names
  end
  if redis.call('EXISTS', keys.type_set(set)) == 0 then redis.call('ZREM', keys.TYPE_SETS, set) end
end
return removed
