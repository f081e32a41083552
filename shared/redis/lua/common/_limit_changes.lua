-- Included by the scripts that change or show limits.

-- Gives a slot to every task that runs under the limit: it may have started before there was one.
local function count_running(name)
  redis.call('DEL', keys.slots(name))
  for _, id in ipairs(redis.call('ZRANGE', keys.LEASES, 0, -1)) do
    local t = record(id, 'state', 'description', 'limit_key')
    if t and t.state == 'running' and (name == 'type:' .. (t.description or '') or name == 'key:' .. (t.limit_key or '')) then
      redis.call('SADD', keys.slots(name), id)
    end
  end
end

-- Wakes the workers whose tasks a limit held back.
local function recheck_limit(name)
  if redis.call('ZADD', keys.LIMITS_DUE, 'XX', 'CH', NOW, name) == 1 then wake_for_limit(name) end
end

-- Puts a limit into effect ("" for none), and wakes the workers that wait for it.
local function set_limit(name, text)
  local before = redis.call('HGET', keys.LIMITS, name)
  if (before or '') == text then return end
  if text == '' then redis.call('HDEL', keys.LIMITS, name) else redis.call('HSET', keys.LIMITS, name, text) end
  local had = before and cjson.decode(before).concurrency
  local has = text ~= '' and cjson.decode(text).concurrency
  if has and not had then count_running(name) end
  if not has then redis.call('DEL', keys.slots(name)) end
  if text == '' or not cjson.decode(text).count then redis.call('DEL', keys.bucket(name)) end
  recheck_limit(name)
end
