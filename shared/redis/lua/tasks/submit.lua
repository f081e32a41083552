-- @include _prelude _webhooks _relations _limits _types _worker_queues
-- @step cancel
-- Stores new tasks, each at most once, and wakes workers for those that may run now.
-- ARGV: now, bounds (see `register_queue`; 0: any number of pending tasks; with a ! at the end for tasks that belong into
--   this partition, whether it is draining or not), then nine per task:
--   id, queue, type, data (RQ's call in JSON), due, expires (each "" or microseconds since 1970, or with a leading +
--   from now), tags ("" or a JSON array), extra ("" or a JSON array of more fields and their values in turns), terms
--   ("" or a JSON object: `unique` its unique key, `until` when it frees that ("start", "end" or milliseconds),
--   `conflict` what to do when another task holds it: "refuse", "existing" or "replace"; `client` and `by`, where callers
--   have names, the submitter, and the same with the API key; `limit`, `fair` and `score` its limit_key, fair_key and score).
--   A task with relations has them in its extra fields: `relations` = "1" (first), with `parents` (JSON: lists of id and
--   "success" or "end") and `on_parent_failure`, with `batch` and `batch_index`, with `after_batch`, or with `webhook`
--   (see `_webhooks.lua`).
-- Returns per task: its state, "full" when its queue is full, or "many" when that would be one too many; for a task stored
--   before its state.
-- Where another task holds the unique key: {"conflict", that task's id, its state ("" if not known)}, or
-- {"existing", that task's id, its state, its queue}.
-- "missing ID" when a parent does not exist. For a task of a batch also "closed" when the batch takes no more; and for
-- one stored before "=" and its state, "=removed" when its record is removed, "differs" when its data is not the same.
local bounds = ARGV[2]
local limit, stays = tonumber(string.match(bounds, '^%d+')), string.sub(bounds, -1) == '!'
local stamp = iso(now)
local by_lane, listed, room, answer, created = {}, {}, {}, {}, 0

local function moment(text)
  if text == '' then return nil end
  if string.sub(text, 1, 1) == '+' then return now + tonumber(string.sub(text, 2)) end
  return tonumber(text)
end

local registered = {}
local function is_registered(queue)
  if registered[queue] == nil then registered[queue] = register_queue(queue, bounds) end
  return registered[queue]
end

local function has_room(queue)
  if limit == 0 then return true end
  if not room[queue] then
    room[queue] = limit - redis.call('ZCARD', keys.pending(queue)) - redis.call('ZCARD', keys.throttled(queue))
  end
  return room[queue] > 0
end

-- Only a task that is pending at once takes a place: others of the same call see it as if it had been sent before.
local function take_place(queue)
  if room[queue] then room[queue] = room[queue] - 1 end
end

-- Collects additions of many tasks to one index, written together at the end.
local function list_later(key, score, id)
  local list = listed[key]
  if not list then
    list = {}
    listed[key] = list
  end
  list[#list + 1] = score
  list[#list + 1] = id
end

local lanes = {}
local function lane_of(queue, task_type)
  local place = queue .. '|' .. task_type
  lanes[place] = lanes[place] or lane_for(queue, task_type)
  return lanes[place]
end

local function enqueue_later(queue, lane, id, score)
  local ids = by_lane[lane]
  if not ids then
    ids = {}
    by_lane[lane] = ids
  end
  ids[#ids + 1] = id
  list_later(keys.pending(queue), score, id)
end

local function write_list(key, list)
  for at = 1, #list, 1000 do redis.call('ZADD', key, unpack(list, at, math.min(at + 999, #list))) end
end

-- A corrupt key does not stop the step; the error is returned at the end: stored tasks are counted in their batch and
-- enqueued, and the step that is run again (see `_quarantine.lua`) adds what is missing.
local failure
local function attempt(step, ...)
  local whole, problem = pcall(step, ...)
  if not whole then failure = failure or problem end
end

-- Enqueues the tasks that may run now, and adds all of them to their indexes.
local function enqueue_all()
  for lane, ids in pairs(by_lane) do
    list_lane(lane, ids[1])
    for at = 1, #ids, 1000 do
      redis.call('RPUSH', keys.rq_queue(lane), unpack(ids, at, math.min(at + 999, #ids)))
    end
    notify_workers(#ids, lane)
  end
  for key, list in pairs(listed) do attempt(write_list, key, list) end
  by_lane, listed = {}, {}
end

local function index(id, task_type, tags, score)
  list_later(keys.TASKS, score, id)
  list_later(keys.tasks_of_type(task_type), score, id)
  if tags ~= '' then
    for _, tag in ipairs(cjson.decode(tags)) do list_later(keys.tasks_with_tag(tag), score, id) end
  end
end

-- What this step needs of a batch, and what it adds to it, written together at the end.
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
    if state == 'gone' then return 'missing ' .. parent[1] end
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
    if t and t.state then return (t.data ~= data and not t.amended) and 'differs' or '=' .. t.state end
    if batch.removed and redis.call('ZSCORE', keys.batch_items(relations.batch), id) then return '=removed' end
    if not batch.open then return 'closed' end
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

-- Where tasks of its limit or type wait already, or tenants take turns, a task is throttled from the beginning.
local waiting = {}
local function group_for(task_type, terms)
  local names = limited and limit_names(task_type, terms and terms.limit) or {}
  if limited then names[#names + 1] = worker_queue(task_type) end
  for _, name in ipairs(names) do
    if waiting[name] == nil then waiting[name] = redis.call('ZSCORE', keys.LIMITS_DUE, name) or false end
    if waiting[name] then return name end
  end
  return terms and (terms.fair or terms.score) and ''
end

local function enqueue_or_throttle(id, queue, task_type, terms, score)
  local group, lane = group_for(task_type, terms), lane_of(queue, task_type)
  if not group then return enqueue_later(queue, lane, id, score) end
  enter_wait_queue(id, lane, group, terms and terms.fair or '', num(now + created), terms and terms.score)
  if worker_queue_parts(group) then wake_for_type(group)
  elseif group == '' or tonumber(waiting[group]) <= now then notify_workers(1, lane) end
end

-- Returns alternating names and values of the fields that not every record has.
local function more_fields(due, expires, tags, extra, relations)
  local more = relations and relations.fields or extra ~= '' and cjson.decode(extra) or {}
  local function add(name, value)
    more[#more + 1] = name
    more[#more + 1] = value
  end
  if due and due > now then add('due_at', num(due)) end
  if tags ~= '' then add('tags', tags) end
  if expires then add('expires_at', num(expires)) end
  if relations and relations.open_parents then add('open_parents', relations.open_parents) end
  if relations and relations.reason then
    add('cancel', relations.reason)
    add('ended_at', stamp)
  end
  return more
end

local function store(id, queue, task_type, data, due, expires, tags, extra, relations, terms)
  local state, score = first_state(id, due, relations), num(now + created)
  local more = more_fields(due, expires, tags, extra, relations)
  redis.call('HSET', keys.rq_job(id), 'state', state, 'status', RQ_STATUS[state], 'data', data, 'origin', queue,
    'description', task_type, 'created_at', stamp, 'enqueued_at', stamp, unpack(more))
  created = created + 1
  if relations and relations.batch then count_in_batch(id, state, relations) end
  index(id, task_type, tags, score)
  if expires and state ~= 'cancelled' then watch_deadline(id, num(expires)) end
  if state == 'pending' then
    take_place(queue)
    enqueue_or_throttle(id, queue, task_type, terms, num(now + created))
  else enter(id, state, queue, due) end
  if state == 'cancelled' then count(state, 1) end
  if relations then register_relations(id, relations) end
  if relations and relations.webhook and ENDED[state] then create_delivery(id, state, relations.webhook) end
  return state
end

local function store_at(at, relations, terms)
  return store(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], moment(ARGV[at + 4]), moment(ARGV[at + 5]),
    ARGV[at + 6], ARGV[at + 7], relations, terms)
end

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
  if not fits then return 'full' end
  if holder then replace(holder, id, terms, relations) end
  hold_unique(id, terms.unique, terms['until'])
  redis.call('HSET', keys.rq_job(id), 'unique', terms.unique, 'unique_until', terms['until'])
  if terms.client then redis.call('HSET', keys.rq_job(id), 'unique_client', terms.client) end
  return store_at(at, relations, terms)
end

local function take(at)
  local id, queue = ARGV[at], ARGV[at + 1]
  local relations = relations_of(ARGV[at + 7])
  local known = relations and answered(id, relations, ARGV[at + 3])
  -- For a task of a batch this was checked before.
  if not known and not (relations and relations.batch) then known = redis.call('HGET', keys.rq_job(id), 'state') end
  if known then return known end
  if not is_registered(queue) then return 'many' end
  local terms = ARGV[at + 8] ~= '' and cjson.decode(ARGV[at + 8])
  if terms and terms.unique then return store_unique(at, id, queue, terms, relations) end
  if not (stays or is_tied(relations)) then demand_active() end
  if not has_room(queue) then return 'full' end
  return store_at(at, relations, terms)
end

attempt(function()
  for at = 3, #ARGV, 9 do answer[#answer + 1] = take(at) end
end)
attempt(write_batches)
attempt(enqueue_all)
attempt(count, 'submitted', created)
if failure then error(failure, 0) end
return answer
