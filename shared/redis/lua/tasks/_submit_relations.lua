-- Part of `submit.lua`: batches and parents of new tasks.

-- The data that this step reads of a batch, and its additions, written together at the end.
local batches = {}
local function look_at_batch(id)
  if not batches[id] then
    local b = hash(keys.batch(id), 'total', 'stopped', 'closed', 'removed')
    batches[id] = {open = b.total and not b.stopped and not b.closed, removed = b.removed, room = slots(id), counts = {}, items = {}}
  end
  return batches[id]
end

local function write_batches()
  for id, batch in pairs(batches) do
    local key, items, ended = keys.batch(id), batch.items, 0
    for state, n in pairs(batch.counts) do
      redis.call('HINCRBY', key, state, n)
      if ENDED[state] then ended = ended + n end
    end
    if #items > 0 then
      redis.call('HINCRBY', key, 'total', #items / 2)
      if ended > 0 then redis.call('HINCRBY', key, 'ended', ended) end
      for at = 1, #items, 1000 do
        redis.call('ZADD', keys.batch_items(id), unpack(items, at, math.min(at + 999, #items)))
      end
      redis.call('ZADD', keys.OPEN_BATCHES, 'XX', NOW, id)
    end
  end
  batches = {}
end

-- Looks up its parents: how many it waits for, why it will never run. Returns why it cannot be taken, if so.
local function look_at_parents(relations)
  relations.open_parents, relations.scores = 0, {}
  for at, parent in ipairs(relations.parents) do
    local state = state_of(parent[1])
    if state == 'gone' then return {'missing', parent[1]} end
    local verdict = judge(state, parent[2], relations.on_parent_failure)
    if verdict == 'cancel' then relations.reason = relations.reason or unmet(parent[1], state) end
    relations.scores[at] = verdict == 'wait' and num(now + created) or verdict == 'hold' and '-' .. NOW or '0'
    if verdict ~= 'met' then relations.open_parents = relations.open_parents + 1 end
  end
end

-- Returns why a task with relations is not taken, or the answer for one stored before; nil to continue.
local function answered(id, relations, data)
  if relations.batch then
    local batch = look_at_batch(relations.batch)
    local t = record(id, 'state', 'data', 'amended')
    if t and t.state then return (t.data ~= data and not t.amended) and {'differs'} or {'known', t.state} end
    if batch.removed and redis.call('ZSCORE', keys.batch_items(relations.batch), id) then return {'known', ''} end
    if not batch.open then return {'closed'} end
  end
  return relations.parents and look_at_parents(relations)
end

-- Returns its first state.
local function first_state(id, due, relations)
  local first = (due and due > now) and 'scheduled' or 'pending'
  if not relations then return first end
  if relations.reason then return 'cancelled' end
  if relations.after_batch or (relations.open_parents or 0) > 0 then return 'blocked' end
  local batch = first == 'pending' and relations.batch and look_at_batch(relations.batch)
  if batch and batch.room then
    if batch.room <= 0 then
      redis.call('ZADD', keys.batch_wait_queue(relations.batch), num(now + created), id)
      return 'blocked'
    end
    batch.room = batch.room - 1
  end
  return first
end

-- Registers its relations, which no other step does.
local function register_relations(id, relations)
  if relations.parents and not relations.reason then
    for at, parent in ipairs(relations.parents) do add_child(id, parent[1], relations.scores[at]) end
  end
end

local function count_in_batch(id, state, relations)
  local batch = look_at_batch(relations.batch)
  batch.counts[state] = (batch.counts[state] or 0) + 1
  batch.items[#batch.items + 1] = relations.batch_index
  batch.items[#batch.items + 1] = id
end
