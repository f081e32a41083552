-- @include _prelude _types
-- Shows the sets of task types; changes nothing. ARGV: now.
-- Returns {now, then per set {its digest, the last heartbeat of a worker with it, when it was first published, the host
--   of that worker, 1 while such a worker lives}}.
local live, answer = {}, {NOW}
for _, set in ipairs(live_sets()) do live[set] = true end
local rows = redis.call('ZRANGE', keys.TYPE_SETS, 0, -1, 'WITHSCORES')
for at = 1, #rows, 2 do
  local first, host = unpack(redis.call('HMGET', keys.type_set(rows[at]), '@first', '@host'))
  if first then
    answer[#answer + 1] = {rows[at], num(number_of(rows[at + 1]) or 0), num(number_of(first) or 0), host or '',
      live[rows[at]] and 1 or 0}
  end
end
return answer
