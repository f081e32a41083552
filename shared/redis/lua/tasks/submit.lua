-- @include _prelude _webhooks _relations _limits _types _worker_queues
-- @step cancel
-- Stores new tasks, each at most once, and wakes workers for those that may run now.
-- ARGV: now, bounds (see `register_queue`; 0: any number of pending tasks; with a ! at the end for tasks that belong to
--   this store, whether it is draining or not), then nine per task:
--   id, queue, type, data (RQ's call in JSON), due, expires (each "" or microseconds since 1970, or with a leading +
--   from now), tags ("" or a JSON array), extra ("" or a JSON array of more fields and their values in turns), terms
--   ("" or a JSON object: `unique` its unique key, `until` when it frees that ("start", "end" or milliseconds),
--   `conflict` its handling when another task holds it: "refuse", "existing" or "replace"; `client` and `by`, where callers
--   have names, the submitter, and the same with the API key; its `limit_key`, `fair_key` and `score`).
--   A task with relations has them in its extra fields: `relations` = "1" (first), with `parents` (JSON: lists of id and
--   "success" or "end") and `on_parent_failure`, with `batch` and `batch_index`, with `after_batch`, or with `webhook`
--   (see `_webhooks.lua`).
-- Returns per task its state if it is stored, now or before; else a list that begins with the outcome (`SubmitOutcome`):
--   {"full"} when its queue is full, {"many"} when that would be one too many, {"missing", id} when a parent does not exist.
--   Where another task holds the unique key: {"conflict", that task's id, its state ("" if not known)}, or
--   {"existing", that task's id, its state, its queue}.
--   For a task of a batch {"closed"} when the batch takes no more; and for one stored before {"known", its state ("" when
--   its record is removed)}, or {"differs"} when its data is not the same.
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

-- @insert _submit_indexes
-- @insert _submit_relations

-- Where tasks of its limit or type wait already, or tenants take turns, a task is throttled from the beginning.
local waiting = {}
local function group_for(task_type, terms)
  local names = limited and limit_names(task_type, terms and terms.limit_key) or {}
  if limited then names[#names + 1] = worker_queue(task_type) end
  for _, name in ipairs(names) do
    if waiting[name] == nil then waiting[name] = redis.call('ZSCORE', keys.LIMITS_DUE, name) or false end
    if waiting[name] then return name end
  end
  return terms and (terms.fair_key or terms.score) and ''
end

local function enqueue_or_throttle(id, queue, task_type, terms, score)
  local group, lane = group_for(task_type, terms), lane_of(queue, task_type)
  if not group then return enqueue_later(queue, lane, id, score) end
  enter_wait_queue(id, lane, group, terms and terms.fair_key or '', num(now + created), terms and terms.score)
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

-- @insert _submit_unique

local function take(at)
  local id, queue = ARGV[at], ARGV[at + 1]
  local relations = relations_of(ARGV[at + 7])
  local known = relations and answered(id, relations, ARGV[at + 3])
  -- For a task of a batch this was checked before.
  if not known and not (relations and relations.batch) then known = redis.call('HGET', keys.rq_job(id), 'state') end
  if known then return known end
  if not is_registered(queue) then return {'many'} end
  local terms = ARGV[at + 8] ~= '' and cjson.decode(ARGV[at + 8])
  if terms and terms.unique then return store_unique(at, id, queue, terms, relations) end
  if not (stays or is_tied(relations)) then demand_active() end
  if not has_room(queue) then return {'full'} end
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
