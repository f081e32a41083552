-- @include _prelude _webhooks _relations
-- Notes the states of parents in another partition, and notifies the tasks here that depend on those that have ended.
-- ARGV: now, when they were read by the clock of that partition, its number, "1" for parents of tasks that are about to be
--   stored, then per parent: id, state as from `parents_watch.lua`, its result or error.
-- What was read before what is known is ignored, so that notices may arrive twice and in any order. A parent that nothing
-- here depends on is noted only for a new task; a full Redis refuses that.
for at = 5, #ARGV, 3 do
  local id, state, mark = ARGV[at], string.match(ARGV[at + 1], '^(%a*)(.*)$')
  local key = keys.remote_parent(id)
  local v = hash(key, 'as_of', 'state')
  local known = number_of(v.as_of)
  local is_new = known == nil or known <= tonumber(ARGV[2])
  local is_used = known or redis.call('EXISTS', keys.children(id)) == 1
  -- A parent that ended well is removed after its retention; what is known of it is still needed here.
  if state == 'gone' and v.state ~= 'failed' and ENDED[v.state or ''] then is_new = false end
  if is_new and (is_used or (ARGV[4] == '1' and state ~= 'gone')) and redis.call('EXISTS', keys.rq_job(id)) == 0 then
    if is_used then write_even_when_full() end
    redis.call('HSET', key, 'state', state, 'found', ARGV[at + 2], 'mark', mark, 'as_of', ARGV[2], 'noted_at', NOW,
      'partition', ARGV[3])
    redis.call('ZADD', keys.REMOTE_PARENTS, NOW, id)
    if state == 'gone' or ENDED[state] then notify_children(id) end
  end
end
