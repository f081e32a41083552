-- Stores new tasks, each at most once, and wakes workers for those that may run now.
-- ARGV: now, the most pending tasks a queue may hold (0: any number), then nine per task:
--   id, queue, type, data (RQ's call in JSON), due, expires (each "" or microseconds since 1970, or with a leading +
--   from now), tags ("" or a JSON array), extra ("" or a JSON array of more fields and their values in turns), terms
--   ("" or a JSON object: `unique` its unique key, `until` when it lets go of that ("start", "end" or milliseconds),
--   `conflict` what to do when another holds it: "refuse", "existing" or "replace").
-- Returns per task: its state, or "full" when its queue has no room; a task that is there already answers its state.
-- Where another task holds the unique key: {"conflict" or "existing", that task's id, its state ("" if not known)}.
local limit = tonumber(ARGV[2])
local stamp = iso(now)
local by_queue, room, answer, created, woken = {}, {}, {}, 0, 0

local function moment(text)
  if text == '' then return nil end
  if string.sub(text, 1, 1) == '+' then return now + tonumber(string.sub(text, 2)) end
  return tonumber(text)
end

local function has_room(queue)
  if limit == 0 then return true end
  if not room[queue] then room[queue] = limit - redis.call('ZCARD', 'taskqueue:pending:' .. queue) end
  room[queue] = room[queue] - 1
  return room[queue] >= 0
end

local function enqueue_later(queue, id)
  local batch = by_queue[queue]
  if not batch then
    batch = {ids = {}, scores = {}}
    by_queue[queue] = batch
  end
  batch.ids[#batch.ids + 1] = id
  batch.scores[#batch.scores + 1] = num(now + created)
  batch.scores[#batch.scores + 1] = id
end

-- Puts those that may run now in line.
local function enqueue_all()
  for queue, batch in pairs(by_queue) do
    redis.call('SADD', 'rq:queues', 'rq:queue:' .. queue)
    for at = 1, #batch.ids, 1000 do
      local last = math.min(at + 999, #batch.ids)
      redis.call('RPUSH', 'rq:queue:' .. queue, unpack(batch.ids, at, last))
      redis.call('ZADD', 'taskqueue:pending:' .. queue, unpack(batch.scores, 2 * at - 1, 2 * last))
    end
    woken = woken + #batch.ids
  end
  by_queue = {}
end

local function index(id, task_type, tags, created_at)
  redis.call('ZADD', TASKS, created_at, id)
  redis.call('ZADD', 'taskqueue:tasks:type:' .. task_type, created_at, id)
  if tags ~= '' then
    for _, tag in ipairs(cjson.decode(tags)) do redis.call('ZADD', 'taskqueue:tasks:tag:' .. tag, created_at, id) end
  end
end

local function store(id, queue, task_type, data, due, expires, tags, extra)
  local state = (due and due > now) and 'scheduled' or 'pending'
  redis.call('HSET', job_key(id), 'state', state, 'status', RQ_STATUS[state], 'data', data, 'origin', queue,
    'description', task_type, 'created_at', stamp, 'enqueued_at', stamp)
  if state == 'scheduled' then redis.call('HSET', job_key(id), 'due_at', num(due)) end
  if tags ~= '' then redis.call('HSET', job_key(id), 'tags', tags) end
  if extra ~= '' then redis.call('HSET', job_key(id), unpack(cjson.decode(extra))) end
  if expires then
    redis.call('HSET', job_key(id), 'expires_at', num(expires))
    watch_deadline(id, num(expires))
  end
  index(id, task_type, tags, num(now + created))
  created = created + 1
  if state == 'scheduled' then enter_due(id, state, queue, due) else enqueue_later(queue, id) end
  return state
end

local function store_at(at)
  return store(ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3], moment(ARGV[at + 4]), moment(ARGV[at + 5]),
    ARGV[at + 6], ARGV[at + 7])
end

-- What a sender is told whose unique key another task holds; nil when that one is to make way. One that runs already
-- can only end by itself.
local function refused(terms, holder, state)
  if terms.conflict == 'existing' and state ~= '' then return {'existing', holder, state} end
  if terms.conflict == 'replace' and state ~= 'running' then return nil end
  return {'conflict', holder, state}
end

local function replace(holder, key)
  enqueue_all()
  cancel({ARGV[1], holder, 'replaced by a newer task with the same unique key'})
  redis.call('DEL', 'taskqueue:unique-for:' .. key)
end

local function store_unique(at, id, queue, terms)
  local holder, state = unique_holder(terms.unique)
  local no = holder and refused(terms, holder, state)
  if no then return no end
  if not has_room(queue) then return 'full' end
  if holder then replace(holder, terms.unique) end
  hold_unique(id, terms.unique, terms['until'])
  redis.call('HSET', job_key(id), 'unique', terms.unique, 'unique_until', terms['until'])
  return store_at(at)
end

local function take(at)
  local id, queue = ARGV[at], ARGV[at + 1]
  local known = redis.call('HGET', job_key(id), 'state')
  if known then return known end
  local terms = ARGV[at + 8] ~= '' and cjson.decode(ARGV[at + 8])
  if terms and terms.unique then return store_unique(at, id, queue, terms) end
  if not has_room(queue) then return 'full' end
  return store_at(at)
end

for at = 3, #ARGV, 9 do answer[#answer + 1] = take(at) end
enqueue_all()
ring(woken)
count('submitted', created)
return answer
