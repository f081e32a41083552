-- Part of `claim.lua`: the description of a task for its worker.

local describe
do -- Lua has room for 200 local names at a time.
  -- Returns a task's parents' results: {id, state, result (as RQ has it) or error} of each parent, and the counts of the
  -- batch that it follows. Results beyond the size of a claim are left out, which is marked; other tasks of this claim do
  -- not count, but it leaves less room for later ones.
  local function parent_results(id)
    local t = record(id, 'parents', 'after_batch')
    local results, left = {}, tonumber(ARGV[6])
    if t.parents then
      results.parents = {}
      for at, parent in ipairs(parents_of(t.parents)) do
        spend(2)
        local state, found = state_of(parent[1]), ''
        if state == 'completed' then
          found = result_of(parent[1])
        elseif state == 'failed' then
          found = redis.call('HGET', keys.rq_job(parent[1]), 'error')
        end
        found = found or ''
        left = left - #found
        if left < 0 then left, state, found = 0, state .. ' too-large', '' end
        room = room - #found
        results.parents[at] = {parent[1], state, found}
      end
    end
    if t.after_batch then
      results.batch = {id = t.after_batch}
      local b = redis.pcall('HGETALL', keys.batch(t.after_batch))
      for i = 1, #b, 2 do results.batch[b[i]] = b[i + 1] end
    end
    return (results.parents or results.batch) and cjson.encode(results) or ''
  end

  -- Returns of the RQ job that a task was made of whether others depend on it, and these fields, which `ClaimedJob` names
  -- too; nil for a job that the executor has to read itself, as a large one.
  local MOST_CARRIED = 65536
  local function rq_job(task)
    spend(3)
    local id = string.match(redis.call('HGET', keys.RQ_ADOPTED, task) or '', '^%S* (.*)$')
    if not id then return nil end
    local job = redis.pcall('HMGET', keys.rq_job(id), 'status', 'enqueued_at', 'data', 'meta', 'timeout', 'result_ttl',
      'success_callback_name', 'failure_callback_name', 'stopped_callback_name', 'dependency_ids', 'repeats_left',
      'rate_limit_key')
    if job.err or not job[3] or #job[3] > MOST_CARRIED or #(job[4] or '') > MOST_CARRIED then return nil end
    room = room - #job[3] - #(job[4] or '')
    table.insert(job, 1, redis.call('EXISTS', keys.rq_job(id .. ':dependents')))
    return job
  end

  function describe(id, queue, t, attempt, enqueued)
    local _, task_type, data, _, failures, crashes, losses, time_limit, retry, meta = unpack(t, 1, 10)
    return {id, queue, task_type, data, attempt, number_of(failures) or 0, number_of(crashes) or 0,
      number_of(losses) or 0, time_limit or '', retry or '', meta or '', enqueued, t[RELATIONS] and parent_results(id) or '',
      number_of(t[SUSPICIONS]) or 0, task_type == 'firmq.rq-job' and rq_job(id) or nil}
  end
end
