-- Part of `claim.lua`: limits and tenants take turns.

local take_by_turn, store_turn
if limited then
  local low, high = place_of(lowest) or '-inf', place_of(highest) or '+inf'
  -- When a tenant had its last turn in a lane, over the list and all wait queues. Those of its tenants are by that already,
  -- so without others only the turn of the list ('') is stored. Once dropped, a turn costs the others one start.
  local TURN_KEPT = 600
  local turn_of, stored, contested = {}, {}, {}
  local function is_stored(tenant) return #due > 0 or tenant == '' end

  local function last_turn(lane, tenant)
    if not is_stored(tenant) then return 0 end
    contested[lane] = true
    turn_of[lane] = turn_of[lane] or {}
    if not turn_of[lane][tenant] then
      spend(1)
      turn_of[lane][tenant] = tonumber(redis.call('ZSCORE', keys.last_turn(lane), tenant) or 0)
    end
    return turn_of[lane][tenant]
  end

  local function turn_taken(lane, first)
    served = served + 1
    if first.group and (first.others or first.group == '') then
      redis.call('ZADD', tenants_key(lane, first.group), num(now + served), first.tenant)
    end
    if is_stored(first.tenant) then
      turn_of[lane], stored[lane] = turn_of[lane] or {}, stored[lane] or {}
      turn_of[lane][first.tenant], stored[lane][first.tenant] = now + served, num(now + served)
    end
  end

  function store_turn()
    for lane in pairs(contested) do
      local members = {}
      for tenant, turn in pairs(stored[lane] or {}) do
        members[#members + 1] = turn
        members[#members + 1] = tenant
      end
      if #members > 0 and redis.call('ZADD', keys.last_turn(lane), unpack(members)) > 0 then
        redis.call('ZREMRANGEBYSCORE', keys.last_turn(lane), '-inf', num(now - TURN_KEPT * 1000000))
        redis.call('EXPIRE', keys.last_turn(lane), TURN_KEPT)
      end
    end
  end

  -- Returns the next task in the wait queues of a limit or of tenants (''); nil when they are empty. `others` is whether
  -- other tenants wait there. One that had its turn in another wait queue since comes after these.
  local function first_waiting(lane, group)
    local wait_queues, passed = tenants_key(lane, group), 0
    while patience > 0 do
      spend(3)
      local tenant, turn, others = unpack(redis.call('ZRANGE', wait_queues, passed, passed + 1, 'WITHSCORES'))
      if not tenant then break end
      others = others or passed > 0
      local last = others and last_turn(lane, tenant) or 0
      if last > tonumber(turn) then redis.call('ZADD', wait_queues, num(last), tenant)
      else
        local wait_queue = keys.wait_queue(wait_queue_name(lane, group, tenant))
        local id, score = unpack(redis.call('ZRANGEBYSCORE', wait_queue, low, high, 'WITHSCORES', 'LIMIT', 0, 1))
        if id then return {id = id, score = score, group = group, tenant = tenant, turn = turn, others = others} end
        if range and redis.call('EXISTS', wait_queue) == 1 then
          passed = passed + 1
          -- Of more tenants than a claim can look at, it sees others each time.
          if passed == 200 then passed = passed + now % math.max(1, redis.call('ZCARD', wait_queues) - 400) end
        else redis.call('ZREM', wait_queues, tenant) end
      end
    end
    if group == '' and passed == 0 and patience > 0 then
      redis.call('SREM', keys.FAIR, lane)
      has_tenants[lane] = nil
    end
  end

  -- Returns the first task in the range: of the next entries of the list, else of the index, which has them of both kinds.
  local first_in_range = range and function(lane)
    local queue, passed = queue_of_lane[lane], 0
    local ids = redis.call('LRANGE', keys.rq_queue(lane), 0, 19)
    local scores = #ids > 0 and redis.call('ZMSCORE', keys.pending(queue), unpack(ids)) or {}
    for at, id in ipairs(ids) do
      local place = tonumber(scores[at])
      if place and not taken[id] and place >= (tonumber(low) or 0) and place <= (tonumber(high) or math.huge) then
        return {id = id, score = scores[at], tenant = '', turn = scores[at]}
      end
    end
    while #ids > 0 and patience > 0 do
      spend(3)
      local id, score = unpack(redis.call('ZRANGEBYSCORE', keys.pending(queue), low, high, 'WITHSCORES', 'LIMIT', passed, 1))
      if not id then return nil end
      if not taken[id] and lane_for(queue, (record(id, 'description') or {}).description or '') == lane then
        return {id = id, score = score, tenant = '', turn = score}
      end
      passed = passed + 1
    end
  end

  local function first_in_list(lane)
    if range then return first_in_range(lane) end
    while patience > 0 do
      local id = redis.call('LINDEX', keys.rq_queue(lane), 0)
      if not id then return nil end
      local score = redis.call('ZSCORE', keys.pending(queue_of_lane[lane]), id)
      if score and not taken[id] then return {id = id, score = score, tenant = '', turn = score} end
      park_foreign_entries(lane, {id}, {score})
      redis.call('LPOP', keys.rq_queue(lane))
      spend(3)
    end
  end

  -- An entry of a wait queue is a hint, as a queue entry is: the index of throttled tasks decides whether it may be taken.
  local function leave_throttled(id, lane, wait_queue)
    local queue = queue_of_lane[lane]
    redis.call('ZREM', keys.wait_queue(wait_queue), id)
    if redis.call('ZREM', keys.throttled(queue), id) == 0 then return false end
    redis.call('ZREM', keys.rq_deferred(queue), id)
    redis.call('HDEL', keys.rq_job(id), 'wait_queue')
    return true
  end

  -- Takes the next task out of a wait queue. One that another limit holds back moves to that one's wait queue.
  local function take_throttled(first, lane)
    local id, wait_queue = first.id, wait_queue_name(lane, first.group, first.tenant)
    if not leave_throttled(id, lane, wait_queue) then return end
    local t, enqueued = startable(id, lane, first.score)
    if not t then return end
    local names = limit_names(t[TYPE], t[LIMIT_KEY])
    local limit = limit_in_the_way(names)
    if limit then
      looked_at[limit] = true
      return enter_wait_queue(id, lane, limit, tenant_of(id, t), enqueued, t[SCORE])
    end
    spend(take_part(id, names))
    begin(id, queue_of_lane[lane], t, enqueued)
  end

  -- The tenant whose last turn is longest ago goes first; of two tasks of one tenant, the older.
  local function goes_before(one, other, lane)
    if one.tenant ~= other.tenant then
      local turn = math.max(one.turn, last_turn(lane, one.tenant))
      local other_turn = math.max(other.turn, last_turn(lane, other.tenant))
      if turn ~= other_turn then return turn < other_turn end
    end
    return tonumber(one.score) < tonumber(other.score)
  end

  -- A turn is taken by a start. A task that is only moved to another wait queue leaves it to the next one of its tenant,
  -- until half of the claim is spent: the others start with the rest.
  function take_by_turn(lane, n)
    local groups, firsts, enough = {'list', '', unpack(due)}, {}, #tasks + n
    while #tasks < enough and room > 0 and patience > 0 do
      local best, from
      for at, group in ipairs(groups) do
        if at == 1 or (at == 2 and has_tenants[lane]) or (at > 2 and lets_start(limit_of(group))) then
          if firsts[group] == nil then
            firsts[group] = (at == 1 and first_in_list(lane) or at > 1 and first_waiting(lane, group)) or false
          end
          local first = firsts[group]
          if first and (not best or goes_before(first, best, lane)) then best, from = first, group end
        end
      end
      if not best then return end
      spend(COST.by_turn)
      firsts[from] = nil
      local before = #tasks
      if best.group then
        take_throttled(best, lane)
      else
        if not range then redis.call('LPOP', keys.rq_queue(lane)) end
        start(lane, {best.id}, {best.score}, 1)
        -- Elsewhere in the list the entry stays, and leads nowhere.
        if range and taken[best.id] and redis.call('LINDEX', keys.rq_queue(lane), 0) == best.id then
          redis.call('LPOP', keys.rq_queue(lane))
        end
      end
      if #tasks > before or patience < COST.all / 2 then turn_taken(lane, best) end
      if #tasks == before then firsts[''] = nil end -- a task of the list may be there now
      for group, first in pairs(firsts) do
        if first and first.others and first.tenant == best.tenant then firsts[group] = nil end
      end
    end
  end
end
