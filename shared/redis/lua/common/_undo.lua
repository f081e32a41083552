-- Included by the scripts that delete and restore tasks. A cancelled task is on record until its retention ends; a deleted
-- one is copied to `keys.deleted` for a time, outside of all other structures.

-- Keeps a copy of a task that is about to be deleted, for so many milliseconds. `bulk` is the bulk action that deletes
-- it, or nil.
local function keep_copy(id, kept, bulk)
  redis.call('COPY', keys.rq_job(id), keys.deleted(id), 'REPLACE')
  if bulk then redis.call('HSET', keys.deleted(id), 'bulk', bulk) end
  redis.call('PEXPIRE', keys.deleted(id), kept)
  if redis.call('COPY', keys.rq_results(id), keys.deleted_results(id), 'REPLACE') == 1 then
    redis.call('PEXPIRE', keys.deleted_results(id), kept)
  end
  redis.call('ZADD', keys.DELETED, NOW, id)
end

-- Deletes a task that ended in this state. A record that is not a hash has no state and is deleted when the index of
-- the state holds it; a corrupt record is not kept. Returns {state found ("" for unknown), 1 when it was deleted}.
local function delete_one(id, wanted, kept, bulk)
  local t = record(id, 'state', 'origin', 'description')
  local state = t and t.state or ''
  local listed = redis.call('ZSCORE', keys.ended(wanted), id)
  if not (listed and (state == wanted or not t or not t.state)) then return {state, 0} end
  before_removal(id)
  if kept > 0 and state == wanted and t.origin and t.description then keep_copy(id, kept, bulk) end
  remove(id, wanted, t and t.origin or '', '')
  return {wanted, 1}
end

-- Restores a deleted task in the state in which it ended; its retention starts again.
local function restore_deleted(id)
  local key = keys.deleted(id)
  local t = hash(key, 'state', 'origin', 'description', 'created_at', 'tags', 'batch', 'parents')
  if not (ENDED[t.state] and t.origin and t.description) then return {'', 0} end
  redis.call('COPY', key, keys.rq_job(id))
  redis.call('PERSIST', keys.rq_job(id))
  if redis.call('COPY', keys.deleted_results(id), keys.rq_results(id)) == 1 then
    redis.call('PERSIST', keys.rq_results(id))
  end
  redis.call('UNLINK', key, keys.deleted_results(id))
  redis.call('ZREM', keys.DELETED, id)
  local created = num(microseconds(t.created_at) or now)
  redis.call('ZADD', keys.TASKS, created, id)
  redis.call('ZADD', keys.tasks_of_type(t.description), created, id)
  for _, tag in ipairs(tags_of(t.tags)) do redis.call('ZADD', keys.tasks_with_tag(tag), created, id) end
  enter(id, t.state, t.origin)
  redis.call('ZREM', keys.UNARCHIVED, id) -- this end was registered when it came
  if t.batch and redis.call('EXISTS', keys.batch(t.batch)) == 1 then
    redis.call('HINCRBY', keys.batch(t.batch), 'removed', -1)
    redis.call('ZREM', keys.EMPTY_BATCHES, t.batch)
  end
  if t.parents and keeps(t.state) then
    for _, parent in ipairs(parents_of(t.parents)) do
      if state_of(parent[1]) ~= 'gone' then redis.call('ZADD', keys.children(parent[1]), 0, id) end
    end
  end
  return {t.state, 1}
end

-- Restores a cancelled task: to its queue, to its time, or to the parents or the batch that it waited for. A deadline
-- that has passed is lifted.
local function restore_cancelled(id)
  local t = record(id, 'origin', 'description', 'data', 'due_at', 'expires_at', 'open_parents', 'after_batch', 'batch')
  if not (t.origin and t.description and t.data) then return {'cancelled', 0} end
  if t.batch and stopped(t.batch) then return {'cancelled', 0, t.batch} end
  history.keep(id, 'COPY')
  redis.call('HDEL', keys.rq_job(id), 'cancel', 'ended_at', 'progress', 'begun', 'bulk')
  if (number_of(t.expires_at) or 0) > now then watch_deadline(id, t.expires_at)
  else redis.call('HDEL', keys.rq_job(id), 'expires_at') end
  hold_unique_again(id, {start = true, ['end'] = true})
  local due = number_of(t.due_at)
  if (number_of(t.open_parents) or 0) > 0 or t.after_batch then
    transition(id, 'cancelled', 'blocked', t.origin, nil, 'token', '')
    moved(id, 'cancelled', 'blocked')
    repair_blocked(id)
  elseif due and due > now then
    transition(id, 'cancelled', 'scheduled', t.origin, due, 'token', '')
    moved(id, 'cancelled', 'scheduled')
  elseif not held_back(id, 'cancelled', t.origin, NOW, 'token', '') then
    transition(id, 'cancelled', 'pending', t.origin, nil, 'token', '')
    moved(id, 'cancelled', 'pending')
  end
  return {'cancelled', 1}
end


-- Restores a task that was cancelled or deleted, and withdraws the request to cancel a running one: if its worker has
-- stopped it meanwhile, it runs again (see `report.lua`). The cancelled task of an RQ job is not restored: its job was
-- canceled with it, and would be skipped. Returns {state found ("" for unknown), 1 when it was restored, its batch if that
-- is stopped}.
local function restore_one(id)
  local t = record(id, 'state', 'description', 'cancel', 'batch')
  if not t then return {'', 0} end
  if not t.state then return restore_deleted(id) end
  local asked = t.state == 'running' and t.cancel
  if not (t.state == 'cancelled' or asked) or t.description == 'firmq.rq-job' then return {t.state, 0} end
  if not asked then return restore_cancelled(id) end
  if t.batch and stopped(t.batch) then return {t.state, 0, t.batch} end
  redis.call('HDEL', keys.rq_job(id), 'cancel', 'bulk')
  return {t.state, 1}
end
