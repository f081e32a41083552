-- Part of `claim.lua`: when to check the limits that it met again.

local again_in, tasks_wait = -1, false
if limited then
  -- Returns whether tasks wait for a limit in lanes that this claim does not name: true where it has looked at as many keys
  -- as it may, and one of the next claims has to look again.
  local lookups = 3000
  local function waited_for_elsewhere(name)
    if lookups <= 0 then return true end
    local wait_queues = {}
    for at, lane in ipairs(all_lanes()) do wait_queues[at] = tenants_key(lane, name) end
    lookups = lookups - #wait_queues
    return #existing_keys(wait_queues) > 0
  end

  -- Sets when to check the wait queues of each examined limit again; returns whether one of ours is due at once.
  local function settle_limit(name)
    local limit, here = limit_of(name), waited_for_here(name)
    if not here and not waited_for_elsewhere(name) then
      redis.call('ZREM', keys.LIMITS_DUE, name)
      return false
    end
    redis.call('ZADD', keys.LIMITS_DUE, due_of(limit), name)
    return here and lets_start(limit)
  end

  -- Skipped limits are examined last the next time; the wait queues of some may be removed altogether.
  local function settle_elsewhere()
    local latest = {}
    for at, name in ipairs(due.elsewhere) do
      if at <= due.most then settle_limit(name)
      else
        latest[#latest + 1] = NOW
        latest[#latest + 1] = name
      end
    end
    if #latest > 0 then redis.call('ZADD', keys.LIMITS_DUE, unpack(latest)) end
  end

  for _, name in ipairs(due) do looked_at[name] = true end
  for name in pairs(looked_at) do tasks_wait = settle_limit(name) or tasks_wait end
  settle_elsewhere()
  local next_due = redis.call('ZRANGEBYSCORE', keys.LIMITS_DUE, '(' .. NOW, '(+inf', 'WITHSCORES', 'LIMIT', 0, 1)
  if next_due[2] then again_in = tonumber(next_due[2]) - now end
  for _, lane in ipairs(lanes) do tasks_wait = tasks_wait or has_tenants[lane.name] end
  more = more or (#due == due.most and #tasks > 0)
end
