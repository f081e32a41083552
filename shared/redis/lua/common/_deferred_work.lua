-- Part of `_relations.lua`: deferred work.

-- Runs deferred work for at most so many tasks; returns how many it processed.
local function run_deferred_work(most)
  local function carry_out(work, id, reason)
    if work == 'retry' then
      requeue_one(id)
    elseif work == 'cancel' or state_of(id) ~= 'running' then
      cancel_one(id, reason)
    end
  end

  local function work_on_batch(batch)
    local key = keys.batch(batch)
    local v = hash(key, 'work', 'work_at', 'stopped')
    local left = math.max(budget, 0)
    local after = number_of(v.work_at) and v.work_at or '-1' -- a corrupt one starts again
    local items = v.work and redis.call('ZRANGEBYSCORE', keys.batch_items(batch), '(' .. after, '+inf', 'WITHSCORES',
      'LIMIT', 0, left) or {}
    budget = budget - #items / 2
    for at = 1, #items, 2 do carry_out(v.work, items[at], v.stopped or 'its batch was stopped') end
    if #items < 2 * left then
      redis.call('HDEL', key, 'work', 'work_at')
      redis.call('ZREM', keys.DEFERRED_WORK, 'batch:' .. batch)
    else
      redis.call('HSET', key, 'work_at', items[#items])
    end
  end

  budget = most
  for _ = 1, 20 do
    local what = budget > 0 and redis.call('ZRANGE', keys.DEFERRED_WORK, 0, 0)[1]
    if not what then break end
    local kind, id = string.match(what, '^(%a+):(.*)$')
    if kind == 'task' then notify_children(id)
    elseif kind == 'children' then cancel_children(id)
    elseif kind == 'batch' then work_on_batch(id)
    else redis.call('ZREM', keys.DEFERRED_WORK, what) end
  end
  return most - budget
end
