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

-- Keeps the share of a partition in a limit whose numbers change: the same part of it, rounded down. So all shares together
-- never exceed the new limit, in whatever order the partitions learn of it.
local function keep_share(name, before, text)
  if text == '' then return redis.call('HDEL', keys.LIMIT_SHARES, name) end
  local old, new = before and cjson.decode(before), cjson.decode(text)
  local slots, part, numbers = limit_shares.read(name)
  if not old or not new.shared or numbers ~= limit_shares.numbers(old) then return end
  local had, has = number_of(old.concurrency), number_of(new.concurrency)
  slots = (had and has and had > 0) and math.floor(slots * has / had) or 0
  if not old.count then part = 0 end
  redis.call('HSET', keys.LIMIT_SHARES, name, num(slots) .. ' ' .. num(part) .. ' ' .. limit_shares.numbers(new))
end

-- Puts a limit into effect ("" for none), and wakes the workers that wait for it.
local function set_limit(name, text)
  local before = redis.call('HGET', keys.LIMITS, name)
  if (before or '') == text then return end
  keep_share(name, before, text)
  if text == '' then redis.call('HDEL', keys.LIMITS, name) else redis.call('HSET', keys.LIMITS, name, text) end
  local had = before and cjson.decode(before).concurrency
  local has = text ~= '' and cjson.decode(text).concurrency
  if has and not had then count_running(name) end
  if not has then redis.call('DEL', keys.slots(name)) end
  if text == '' or not cjson.decode(text).count then redis.call('DEL', keys.bucket(name)) end
  recheck_limit(name)
end
