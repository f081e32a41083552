-- Webhook deliveries of ended tasks: each is a task of the type `firmq.webhook`, created in the step that ends the
-- task. So no crash can lose it, and every way of ending a task (a report, a cancel, its expiry, the death of its
-- worker) creates it. It carries everything that it reports, so that a retry sends the same, even if the task was
-- removed since.
-- A task with a webhook has `webhook` (JSON: url, events, retry) among the fields that come after `relations`.
local HOOK = 'firmq.webhook'

local function error_of(text)
  local ok, error = pcall(cjson.decode, text or '')
  if not ok or type(error) ~= 'table' then return nil end
  return {type = error.type, message = error.message}
end

local function payload_of(id, event, url)
  local t = record(id, 'description', 'attempt', 'ended_at', 'error', 'cancel')
  local payload = {url = url, event = event, task_id = id, task_type = t.description or '', attempts = number_of(t.attempt) or 0,
    ended_at = t.ended_at or iso(now)}
  if event == 'completed' then
    local result = result_of(id)
    -- A larger result (in base64) is left out, which the delivery states.
    if result and #result > 65536 then payload.result_left_out = true else payload.result_base64 = result end
  end
  if event == 'failed' then payload.error = error_of(t.error) end
  if event == 'cancelled' then payload.reason = t.cancel or nil end
  return payload
end

-- Stores one delivery of `task` and enqueues it. `call` is RQ's call, made of the id when it is not known yet. Where
-- deliveries wait for a limit, receivers take turns (see `tenant_of` in `_claim_startable.lua`).
local function post(task, queue, call, retry, meta, receiver)
  local id = task .. '-hook-' .. num(redis.call('HINCRBY', keys.rq_job(task), 'deliveries', 1))
  redis.call('HSET', keys.rq_job(id), 'state', 'pending', 'status', 'queued', 'data', call(id), 'origin', queue,
    'description', HOOK, 'created_at', iso(now), 'enqueued_at', iso(now), 'delivery_of', task)
  if retry then redis.call('HSET', keys.rq_job(id), 'retry', retry) end
  if meta then redis.call('HSET', keys.rq_job(id), 'meta', meta) end
  if receiver then redis.call('HSET', keys.rq_job(id), 'receiver', receiver) end
  redis.call('ZADD', keys.TASKS, NOW, id)
  redis.call('ZADD', keys.tasks_of_type(HOOK), NOW, id)
  enter_queue(id, queue)
  count('submitted', 1)
  return id
end

local function wants(hook, event)
  if type(hook.events) ~= 'table' then return true end
  for _, each in ipairs(hook.events) do
    if each == event then return true end
  end
  return false
end

-- Creates the delivery for a task's end; to be called after its record is updated. `told` is the end that was handled:
-- the consistency check finds by it an end caused by an earlier version, which does not know webhooks.
local function create_delivery(id, event, stored)
  local ok, hook = pcall(cjson.decode, stored)
  local t = record(id, 'origin', 'meta', 'ended_at')
  redis.call('HSET', keys.rq_job(id), 'delivered_end', t.ended_at or '')
  if not ok or type(hook) ~= 'table' or not t.origin or not wants(hook, event) then return end
  local payload = payload_of(id, event, hook.url)
  local function call(delivery)
    payload.message = delivery
    return '["firmq.rq.refuse",null,["' .. HOOK .. '",' .. cjson.encode(payload) .. '],{}]'
  end
  local host = type(hook.url) == 'string' and string.match(hook.url, '^%a+://([^/?#|]+)')
  post(id, t.origin, call, hook.retry and cjson.encode(hook.retry), t.meta and replayed(t.meta, '', 0), host and string.lower(host))
end
