-- The result of a task, and the removal of all that is stored of it.

-- Returns the handler's result from RQ's stream: base64 of JSON; nil when there is none. A stock worker that took an
-- entry of ours may have added a failure after it.
local function result_of(id)
  local entries = redis.pcall('XREVRANGE', keys.rq_results(id), '+', '-', 'COUNT', 10)
  for _, entry in ipairs(entries.err and {} or entries) do
    for at = 1, #entry[2], 2 do
      if entry[2][at] == 'return_value' then return entry[2][at + 1] end
    end
  end
end

-- Removes every trace of a task from every structure that could hold it.
local function remove(id, state, queue, token)
  local t = record(id, 'description', 'tags', 'unique')
  leave(id, state, queue, token)
  redis.call('ZREM', keys.TASKS, id)
  redis.call('ZREM', keys.DEADLINES, id)
  if t then
    if t.description then redis.call('ZREM', keys.tasks_of_type(t.description), id) end
    release_unique(id, t.unique)
    for _, tag in ipairs(tags_of(t.tags)) do redis.call('ZREM', keys.tasks_with_tag(tag), id) end
  end
  history.keep(id, 'RENAME', state == 'completed' and result_of(id))
  redis.call('UNLINK', keys.rq_job(id), keys.rq_results(id), keys.output(id))
end
