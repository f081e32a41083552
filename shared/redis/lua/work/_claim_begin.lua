-- Part of `claim.lua`: the start of a task.

-- Writes for started tasks are collected, so they cost the same few commands however many there are.
local begin, keep_leases
do
  local leases, started, stamp, until_ = {}, {}, iso(now), num(now + tonumber(ARGV[4]))

  function begin(id, queue, t, score)
    local attempt = math.max(0, math.floor(number_of(t[ATTEMPT]) or 0)) + 1
    set_state(id, 'pending', 'running', 'started_at', stamp, 'worker_name', worker, 'attempt', attempt, 'token', token)
    spend((t[RELATIONS] and COST.related or COST.plain) + (t[UNIQUE] and 3 or 0))
    if t[EXPIRES_AT] then redis.call('ZREM', keys.DEADLINES, id) end
    if t[UNIQUE] and redis.call('HGET', keys.rq_job(id), 'unique_until') == 'start' then release_unique(id, t[UNIQUE]) end
    if t[RELATIONS] then moved(id, 'pending', 'running') end
    leases[#leases + 1] = until_
    leases[#leases + 1] = id
    if t[TYPE] ~= 'firmq.rq-job' then
      started[queue] = started[queue] or {}
      table.insert(started[queue], '+inf')
      table.insert(started[queue], id .. ':' .. token)
    end
    tasks[#tasks + 1] = describe(id, queue, t, attempt, score)
    room = room - #t[DATA]
  end

  function keep_leases()
    if #leases > 0 then redis.call('ZADD', keys.LEASES, unpack(leases)) end
    for queue, members in pairs(started) do redis.call('ZADD', keys.rq_started(queue), unpack(members)) end
  end
end
