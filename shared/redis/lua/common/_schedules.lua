-- Included by the scripts that change schedules.
local SCHEDULES, SCHEDULES_DUE, ENTRIES = 'taskqueue:schedules', 'taskqueue:schedules:due', 'rq:scheduler:scheduled_jobs'

local function schedule_key(name) return 'taskqueue:schedule:' .. name end
local function entry_of(name) return name .. '-entry' end

-- Sets a schedule's place in our list and in rq-scheduler's, which counts seconds; "" for one without a next time.
local function set_due(name, due)
  redis.call('HSET', schedule_key(name), 'due', due)
  if due == '' then
    redis.call('ZREM', SCHEDULES_DUE, name)
    redis.call('ZREM', ENTRIES, entry_of(name))
  else
    redis.call('ZADD', SCHEDULES_DUE, due, name)
    redis.call('ZADD', ENTRIES, num(math.floor((number_of(due) or 0) / 1000000)), entry_of(name))
  end
end

local function unlist(name)
  redis.call('ZREM', SCHEDULES_DUE, name)
  redis.call('ZREM', ENTRIES, entry_of(name))
end
