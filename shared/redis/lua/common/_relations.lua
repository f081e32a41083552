-- Relations between tasks: the tasks that one waits for (its parents), those that wait for it, and its batch. A task that
-- a handler has started is among the parents of its task, with the name of its group, because that waits for its end.
-- Only a task whose record has the field `relations` has relations; of all others a script reads only that field. Every
-- script that ends a task handles them in the same step: its batch counts it, its children are notified. A step
-- notifies a hundred children; the rest is deferred work in `keys.DEFERRED_WORK`, done by the next claims and by the
-- housekeeper, so that ten thousand children delay no other work and a crash in between loses nothing.
-- In `keys.children` the score of a child is its status: above 0, not yet notified how this parent ended
-- (the score is when the child was submitted); 0, notified, and the parent's record is kept until it has ended;
-- below 0, it waits for a parent in the dead letters to be retried.
local SLOT = {pending = true, running = true}
local budget = 100
local moved, cancel_children


local function defer(what)
  if redis.call('ZADD', keys.DEFERRED_WORK, 'NX', NOW, what) == 1 then notify_workers(1) end
end

-- Ends the wait of a blocked task, unless its due time is in the future. Returns its new state.
local function enqueue(id, queue, due)
  local later = number_of(due)
  if later and later <= now then later = nil end
  local to = later and 'scheduled' or 'pending'
  transition(id, 'blocked', to, queue, later)
  return to
end

-- Returns the relations of a task out of its extra fields; nil for most tasks.
local function relations_of(extra)
  if string.sub(extra, 1, 13) ~= '["relations",' then return nil end
  local list = cjson.decode(extra)
  local relations = {fields = list}
  for at = 1, #list, 2 do relations[list[at]] = list[at + 1] end
  if relations.parents then relations.parents = cjson.decode(relations.parents) end
  return relations
end

-- Returns whether a new task belongs into this store, also while it is draining: because of its batch, or of a parent.
local function is_tied(relations)
  return relations and (relations.batch or relations.after_batch or relations.parents)
end

-- @insert _batch_counts
-- @insert _parents

-- --- calls of the other scripts ---

-- Handles a task's change of state; to be called after its record is updated.
function moved(id, from, to)
  local t = record(id, 'relations', 'batch', 'parents', 'children', 'webhook', 'spawned')
  if not t or not t.relations then return end
  if t.batch then
    if from == 'blocked' then redis.call('ZREM', keys.batch_wait_queue(t.batch), id) end
    recount(t.batch, from, to)
  end
  if t.parents and not keeps(to) then let_go(id, t.parents) end
  if t.spawned and to == 'cancelled' then cancel_children(id) end
  if t.children and ENDED[to] then notify_children(id) end
  if t.webhook and ENDED[to] then create_delivery(id, to, t.webhook) end
end

-- Handles the coming removal of an ended task's record.
local function before_removal(id)
  local t = record(id, 'relations', 'batch', 'parents', 'children')
  if not t or not t.relations then return end
  if t.batch and redis.call('EXISTS', keys.batch(t.batch)) == 1 then
    redis.call('HINCRBY', keys.batch(t.batch), 'removed', 1)
    note_empty(t.batch)
  end
  if t.parents then let_go(id, t.parents) end
  if t.children and redis.call('EXISTS', keys.children(id)) == 1 then defer('task:' .. id) end
end

-- Returns whether a completed task is kept past its retention, because a child has not had its result yet. Removes
-- entries of children that have ended.
local function needed(id)
  local t = record(id, 'children')
  if not (t and t.children) then return false end
  local key = keys.children(id)
  for _, child in ipairs(redis.call('ZRANGE', key, 0, 19)) do
    if keeps(state_of(child)) then return true end
    redis.call('ZREM', key, child)
  end
  return redis.call('EXISTS', key) == 1
end

-- Moves a task of a batch without a free slot to the batch's wait queue instead of its queue; `place` is its place there.
-- Further arguments are fields of its record. Returns whether it did.
local function held_back(id, from, queue, place, ...)
  local t = record(id, 'relations', 'batch')
  if not t or not t.relations or not t.batch then return false end
  if (slots(t.batch) or 1) > 0 then return false end
  transition(id, from, 'blocked', queue, nil, ...)
  redis.call('ZADD', keys.batch_wait_queue(t.batch), place, id)
  recount(t.batch, from, 'blocked')
  return true
end

-- @insert _requests
-- @insert _deferred_work
-- @insert _relations_recovery
