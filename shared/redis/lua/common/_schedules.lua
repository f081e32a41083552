-- Included by the scripts that change schedules.

-- Sets a schedule's place in the list of due times; "" for one without a next time.
local function set_due(name, due)
  redis.call('HSET', keys.schedule(name), 'due', due)
  if due == '' then
    redis.call('ZREM', keys.SCHEDULES_DUE, name)
  else
    redis.call('ZADD', keys.SCHEDULES_DUE, due, name)
  end
end

local RUNS_KEPT = 30

-- Returns the runs that are kept of a schedule, the oldest first.
local function runs_of(key)
  local found, runs = redis.call('HGETALL', key), {}
  for at = 1, #found, 2 do
    local due, state = string.match(found[at + 1], '^(%d+) (%l*)$')
    if due then runs[#runs + 1] = {id = found[at], due = due, state = state} else redis.call('HDEL', key, found[at]) end
  end
  table.sort(runs, function(a, b) return tonumber(a.due) < tonumber(b.due) end)
  return runs
end

-- Adds a run, and drops the oldest one above those that are kept.
local function add_run(name, id, due)
  local key = keys.schedule_runs(name)
  redis.call('HSET', key, id, due .. ' pending')
  if redis.call('HLEN', key) > RUNS_KEPT then
    local runs = runs_of(key)
    for at = 1, #runs - RUNS_KEPT do redis.call('HDEL', key, runs[at].id) end
  end
  redis.call('ZADD', keys.SCHEDULES_FOLLOWED, NOW, name)
end
