-- @include _prelude
-- Returns the parents in other partitions whose last look-up is too long ago, and forgets those without children.
-- ARGV: now, the longest time between two look-ups, how long one without children is kept, at most how many.
-- One that has ended is not returned, unless it may be retried. What is returned counts as looked up.
-- Returns per parent: its id, the number of its partition ("" if unknown), since when nothing was heard of it.
write_even_when_full()
local due = {}
local before = num(now - tonumber(ARGV[2]))
for _, id in ipairs(redis.call('ZRANGEBYSCORE', keys.REMOTE_PARENTS, '-inf', before, 'LIMIT', 0, tonumber(ARGV[4]))) do
  local key = keys.remote_parent(id)
  local v = hash(key, 'state', 'noted_at', 'partition')
  local is_used = redis.call('EXISTS', keys.children(id)) == 1
  if is_used or (number_of(v.noted_at) or 0) > now - tonumber(ARGV[3]) then
    redis.call('ZADD', keys.REMOTE_PARENTS, NOW, id)
    if is_used and (v.state == 'failed' or not ENDED[v.state or '']) then
      due[#due + 1] = {id, v.partition or '', number_of(v.noted_at) and v.noted_at or NOW}
    end
  else
    redis.call('ZREM', keys.REMOTE_PARENTS, id)
    redis.call('DEL', key)
  end
end
return due
