-- @include _prelude _webhooks _relations _limits _types _worker_queues
-- Checks the next tasks of a slow pass over all of them, and repairs contradictions: a task that is in no structure or in
-- two, a task that is missing from the lists, an entry without a record. The record is the truth, because every script
-- writes it in the step that moves the task.
-- ARGV: now, lock and token of the caller, lease in microseconds (for a running task without one), how many to check,
--   then the queues.
-- Returns {how many it checked, then alternating a kind of repair and how often}.
-- Its position is kept in `keys.RECOVERY_CURSOR`: the structure, and the score and id of the last task there.
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
write_even_when_full()
local lease, most = tonumber(ARGV[4]), tonumber(ARGV[5])
local RECORDS = 'records'
local STATES = {'pending', 'scheduled', 'retrying', 'running', 'blocked', 'completed', 'failed', 'cancelled', 'expired'}
local KNOWN = {}
for _, state in ipairs(STATES) do KNOWN[state] = true end
local queues, wrong, looked = {}, {}, 0
for at = 6, #ARGV do queues[#queues + 1] = ARGV[at] end

local function found(what) wrong[what] = (wrong[what] or 0) + 1 end

local function forget(id)
  for _, state in ipairs(STATES) do
    for _, queue in ipairs(queues) do leave(id, state, queue, '') end
  end
  redis.call('ZREM', keys.TASKS, id)
  redis.call('ZREM', keys.DEADLINES, id)
  for _, set in ipairs(redis.call('ZRANGE', keys.TYPE_SETS, 0, -1)) do
    for _, name in ipairs(redis.call('HKEYS', keys.type_set(set))) do redis.call('ZREM', keys.tasks_of_type(name), id) end
  end
  found('without_record')
end

local function dead_letter_corrupt(id, from, queue)
  redis.call('HSET', keys.rq_job(id), 'state', 'failed', 'status', 'failed', 'origin', queue, 'ended_at', iso(now), 'error',
    '{"type":"CorruptRecord","message":"the stored record lacks its state or its queue"}')
  moved(id, from, 'failed')
  found('unreadable')
end

-- @insert _repairs

local function list(id, t)
  local created = num(microseconds(t.created_at) or now)
  local added = redis.call('ZADD', keys.TASKS, 'NX', created, id)
  if t.description then added = added + redis.call('ZADD', keys.tasks_of_type(t.description), 'NX', created, id) end
  if added > 0 then
    for _, tag in ipairs(tags_of(t.tags)) do
      redis.call('ZADD', keys.tasks_with_tag(tag), 'NX', created, id)
    end
    found('unlisted')
  end
end

-- A task in a queue that no part knows would never be seen.
local registered = {}
local function keep_registered(queue)
  if registered[queue] then return end
  registered[queue] = true
  redis.call('ZADD', keys.QUEUES, 'NX', NOW, queue)
end

local function inspect(id)
  local t = record(id, 'state', 'origin', 'description', 'created_at', 'due_at', 'tags', 'expires_at', 'data',
    'limit_key', 'webhook', 'delivered_end', 'ended_at', 'awaits')
  if not t then return end
  if not (t.state or t.description or t.data) then return forget(id) end
  local state, queue = t.state, t.origin
  if not KNOWN[state] or not queue then
    local listed, where = listed_under(id, queues)
    dead_letter_corrupt(id, KNOWN[state] and state or listed, queue or where)
    return inspect(id)
  end
  if not ENDED[state] then keep_registered(queue) end
  local home
  for _, other in ipairs(STATES) do
    local there = redis.call('ZSCORE', index_key(other, queue), id)
    if other == 'pending' and state == 'pending' then there = is_throttled(id, queue) or there end
    if other == state then home = there elseif there then take_out(id, other, state, queue) end
  end
  if home then check_score(id, state, queue, number_of(home), number_of(t.due_at))
  else bring_home(id, state, queue, t.due_at) end
  if t.awaits then list_wait(id, state == 'scheduled' and (number_of(t.due_at) or now)) end
  if state == 'blocked' then
    local mended, parents = repair_blocked(id)
    if mended then found('blocked') end
    looked = looked + math.floor(parents / 10)
  end
  if t.description == 'firmq.rq-job' then -- earlier versions had it in RQ's registries; a stock worker may have failed it
    redis.call('ZREM', keys.rq_finished(queue), id)
    redis.call('ZREM', keys.rq_failed(queue), id)
  end
  if t.webhook and ENDED[state] and t.delivered_end ~= (t.ended_at or '') then
    create_delivery(id, state, t.webhook)
    found('untold')
  end
  list(id, t)
  if limited then check_slots(id, state, t) end
  if number_of(t.expires_at) and WAITING[state] and redis.call('ZADD', keys.DEADLINES, 'NX', t.expires_at, id) == 1 then found('unwatched') end
end

-- Frees slots without a holder, which would block other tasks.
local function empty_slots()
  for _, name in ipairs(limited and redis.call('HKEYS', keys.LIMITS) or {}) do
    for _, id in ipairs(redis.call('SMEMBERS', keys.slots(name))) do
      if state_of(id) ~= 'running' then
        free_slot(name, id)
        found('slot')
      end
    end
  end
end

-- @insert _passes

local c = hash(keys.RECOVERY_CURSOR, 'source', 'score', 'id')
local at, score, id = 1, c.score or '', c.id or ''
for i, source in ipairs(sources) do
  if source == c.source then at = i end
end
if sources[at] ~= c.source then score, id = '', '' end
if at == 1 and score == '' then empty_slots() end
for _ = 1, #sources do
  score, id = check_source(sources[at], score, id)
  if not score then
    at, score, id = at % #sources + 1, '', ''
    if at == 1 then break end
  end
  if looked >= most then break end
end
redis.call('HSET', keys.RECOVERY_CURSOR, 'source', sources[at], 'score', score, 'id', id)
local answer = {looked}
for what, times in pairs(wrong) do
  answer[#answer + 1] = what
  answer[#answer + 1] = tostring(times)
end
return answer
