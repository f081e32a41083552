-- Removes ended tasks: those of one final state that ended before a moment, the oldest first.
-- ARGV: now, state, age in microseconds, how many at most. Returns how many were removed.
local state, removed = ARGV[2], 0
local ids = redis.call('ZRANGEBYSCORE', 'taskqueue:' .. state, '-inf', num(now - tonumber(ARGV[3])), 'LIMIT', 0,
  tonumber(ARGV[4]))
for _, id in ipairs(ids) do
  local v = fields(id, 'origin')
  remove(id, state, v and v[1] or '', '')
  removed = removed + 1
end
return removed
