-- Part of `submit.lua`: tasks with a unique key.

-- Returns the answer for a task whose unique key another one holds; nil when that one is replaced. A running one can
-- only end by itself.
local function refused(terms, holder, state)
  if terms.conflict == 'existing' and state ~= '' then
    return {'existing', holder, state, redis.call('HGET', keys.rq_job(holder), 'origin') or ''}
  end
  if terms.conflict == 'replace' and state ~= 'running' then return nil end
  return {'conflict', holder, state}
end

-- The replaced task may be a parent of the new one, or of a parent: those are looked up again.
local function replace(holder, id, terms, relations)
  local key = terms.unique
  enqueue_all()
  write_batches()
  if terms.client and terms.client ~= redis.call('HGET', keys.rq_job(holder), 'unique_client') then
    redis.pcall('XADD', keys.AUDIT, 'MAXLEN', '~', 10000, '*', 'who', terms.by, 'what', 'replaced task',
      'about', holder, 'detail', 'by task ' .. id .. ' with the unique_key of another client')
  end
  cancel({ARGV[1], holder, 'replaced by a newer task with the same unique key'})
  redis.call('DEL', keys.unique_for(key))
  if relations and relations.parents then look_at_parents(relations) end
end

local function store_unique(at, id, queue, terms, relations)
  local holder, state = unique_holder(terms.unique)
  local no = holder and refused(terms, holder, state)
  if no then return no end
  if not (holder or stays or is_tied(relations)) then demand_active() end
  local fits = has_room(queue)
  if holder and state == 'pending' and redis.call('HGET', keys.rq_job(holder), 'origin') == queue then
    -- It takes the place of the replaced task.
    room[queue], fits = room[queue] and room[queue] + 1, true
  end
  if not fits then return {'full'} end
  if holder then replace(holder, id, terms, relations) end
  hold_unique(id, terms.unique, terms['until'])
  redis.call('HSET', keys.rq_job(id), 'unique', terms.unique, 'unique_until', terms['until'])
  if terms.client then redis.call('HSET', keys.rq_job(id), 'unique_client', terms.client) end
  return store_at(at, relations, terms)
end
