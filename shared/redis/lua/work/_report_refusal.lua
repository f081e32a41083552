-- Part of `report.lua`: data that a version of a type does not accept.

-- Records a refusal by a version, nil for a worker that lacks the type. Returns the next state, failed when no version is
-- left that may take the data, and the error.
local function judge_refusal(id, version, error)
  local t = record(id, 'description', 'refused', 'refusal')
  local task_type, refused = t.description or '', t.refused or ''
  if not version then return string.find(task_type, '[^%w._-]') and 'failed' or 'pending', error end
  if not string.find(refused, version, 1, true) then refused = refused == '' and version or refused .. '.' .. version end
  local readable, refusal = pcall(cjson.decode, error)
  local why = readable and type(refusal) == 'table' and type(refusal.message) == 'string' and refusal.message or ''
  if is_served(worker_queue(task_type, refused), recent_sets()) then
    redis.call('HDEL', keys.rq_job(id), 'pinned')
    redis.call('HSET', keys.rq_job(id), 'refused', refused,
      'refusal', string.sub((t.refusal and t.refusal .. '; ' or '') .. 'version ' .. version .. ': ' .. why, 1, 1000))
    return 'pending', error
  end
  if t.refusal and why ~= '' then
    refusal.message = why .. ' (refused before by ' .. t.refusal .. ')'
    error = cjson.encode(refusal)
  end
  redis.call('HDEL', keys.rq_job(id), 'refused', 'refusal', 'pinned')
  return 'failed', error
end

function become.refused(ended, task)
  local id = ended.id
  local t = record(id, 'description', 'refused', 'pinned', 'enqueued_at', 'fair_key', 'score')
  set_state(id, 'running', 'pending', 'token', '')
  bump(id, 'attempt', task.attempt, -1)
  hold_unique_again(id, {start = true})
  if limited then give_tokens_back(id) end
  watch_deadline(id, task.expires_at)
  local task_type = t.description or ''
  local group = worker_queue(task_type, t.refused, t.pinned)
  wait_for_worker(id, lane_for(task.queue, task_type), group, t.fair_key or '', num(microseconds(t.enqueued_at) or now), t.score)
end
