-- @include _prelude _webhooks _relations
-- Notes the states of parents in another partition, and notifies the tasks here that depend on those that have ended.
-- ARGV: now, when they were read by the clock of that partition, then per parent: id, state, its result or error.
-- What was read before what is known is ignored, so that notices may arrive twice and in any order. A full Redis refuses
-- a parent that it does not know.
if redis.call('EXISTS', keys.remote_parent(ARGV[3])) == 1 then write_even_when_full() end
for at = 3, #ARGV, 3 do
  local id, state = ARGV[at], ARGV[at + 1]
  local key = keys.remote_parent(id)
  local known = number_of(redis.call('HGET', key, 'as_of'))
  local is_new = known == nil or known <= tonumber(ARGV[2])
  if is_new and (known or state ~= 'gone') and redis.call('EXISTS', keys.rq_job(id)) == 0 then
    redis.call('HSET', key, 'state', state, 'found', ARGV[at + 2], 'as_of', ARGV[2], 'noted_at', NOW)
    redis.call('ZADD', keys.REMOTE_PARENTS, NOW, id)
    if state == 'gone' or ENDED[state] then notify_children(id) end
  end
end
