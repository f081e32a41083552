-- Part of `claim.lua`: takes the tasks of a queue in the order of its list.

-- Removes entries that lead to no pending task; parks the foreign ones among them first.
local function park_foreign_entries(lane, ids, scores)
  local strange = {}
  for i, id in ipairs(ids) do
    if not scores[i] and not taken[id] then strange[#strange + 1] = id end
  end
  spend(park_foreign(queue_of_lane[lane], strange))
end

local has_tenants = {} -- by lane
for _, lane in ipairs(limited and redis.call('SMEMBERS', keys.FAIR) or {}) do has_tenants[lane] = true end

local start
do
  -- Returns the wait queue of a task from the list that cannot start: its limit's or its tenant's.
  local function wait_queue_for(id, t)
    if t[SCORE] and place_of(t[SCORE]) or (t[FAIR_KEY] and t[FAIR_KEY] ~= '') then return '', t[FAIR_KEY] or '' end
    local names = limit_names(t[TYPE], t[LIMIT_KEY])
    local limit = limit_in_the_way(names)
    if limit then
      looked_at[limit] = true
      return limit, tenant_of(id, t)
    end
    spend(take_part(id, names))
  end

  -- Takes the next task out of the list: it is started unless it cannot be or is throttled.
  local function take_one(id, lane, score)
    local t, enqueued = startable(id, lane, score)
    if not t then return end
    local group, tenant
    if limited then group, tenant = wait_queue_for(id, t) end
    if not group then return begin(id, queue_of_lane[lane], t, enqueued) end
    spend(COST.throttled)
    enter_wait_queue(id, lane, group, tenant, enqueued, t[SCORE])
    if group == '' then has_tenants[lane] = true end
  end

  -- Starts up to `most` of them; returns how many it started and how many were stale or throttled. Valid entries that were
  -- not examined go back to the front in their order. Reading stops when the data would exceed the requested size.
  function start(lane, ids, scores, most)
    local gone, left, before, stale = {}, {}, #tasks, 0
    for i, id in ipairs(ids) do
      if not scores[i] or taken[id] then
        stale = stale + 1
      elseif room <= 0 or patience <= 0 or #tasks - before >= most then
        table.insert(left, 1, id)
      else
        taken[id] = true
        gone[#gone + 1] = id
        take_one(id, lane, scores[i])
      end
    end
    if #left > 0 and not range then redis.call('LPUSH', keys.rq_queue(lane), unpack(left)) end
    if #gone > 0 then redis.call('ZREM', keys.pending(queue_of_lane[lane]), unpack(gone)) end
    return #tasks - before, stale + #gone - (#tasks - before)
  end
end

-- Entries may be stale (cancelled, expired, delivered twice), so a queue is read until it gave enough or is empty; after
-- stale ones, many at a time.
local empty = {}
local function take_from_list(lane, n)
  local got, stale, list = 0, 0, keys.rq_queue(lane)
  while got < n and room > 0 and not empty[lane] and patience > 0 and not has_tenants[lane] do
    local ids = redis.call('LRANGE', list, 0, (stale > 0 and 200 or n - got) - 1)
    if #ids == 0 then
      empty[lane] = true
      return
    end
    spend(0.4 * #ids) -- a stale entry costs no command, but some time
    local scores = redis.call('ZMSCORE', keys.pending(queue_of_lane[lane]), unpack(ids))
    park_foreign_entries(lane, ids, scores)
    redis.call('LTRIM', list, #ids, -1)
    local begun
    begun, stale = start(lane, ids, scores, n - got)
    got = got + begun
  end
end
