-- Included by the scripts that change schedules.

local function entry_of(name) return name .. '-entry' end

-- Sets a schedule's place in our list and in rq-scheduler's, which counts seconds; "" for one without a next time.
local function set_due(name, due)
  redis.call('HSET', keys.schedule(name), 'due', due)
  if due == '' then
    redis.call('ZREM', keys.SCHEDULES_DUE, name)
    redis.call('ZREM', keys.RQ_SCHEDULER_ENTRIES, entry_of(name))
  else
    redis.call('ZADD', keys.SCHEDULES_DUE, due, name)
    redis.call('ZADD', keys.RQ_SCHEDULER_ENTRIES, num(math.floor((number_of(due) or 0) / 1000000)), entry_of(name))
  end
end

local function unlist(name)
  redis.call('ZREM', keys.SCHEDULES_DUE, name)
  redis.call('ZREM', keys.RQ_SCHEDULER_ENTRIES, entry_of(name))
end
