-- History: ends of tasks that are still to be stored there.
-- `keys.HISTORY` exists while a housekeeper stores history. A member of `keys.UNARCHIVED` is the id of a task whose record
-- still shows that end, or ID|SCORE, which names a kept copy: the record was removed since, or the task requeued.

-- One table, as Lua has room for 200 local names in a script.
local history = {
  -- Registers ends (alternating times and ids) for the history. Over the bound, the oldest are dropped, and counted.
  note = function(ends)
    local most = number_of(redis.call('HGET', keys.HISTORY, 'most'))
    if not most then return end
    redis.call('ZADD', keys.UNARCHIVED, unpack(ends))
    local over = math.min(redis.call('ZCARD', keys.UNARCHIVED) - most, 1000)
    if over <= 0 then return end
    for at, member in ipairs(redis.call('ZPOPMIN', keys.UNARCHIVED, over)) do
      if at % 2 == 1 then redis.call('UNLINK', keys.kept_end(member)) end
    end
    redis.call('HINCRBY', keys.HISTORY, 'lost', over)
  end,
  -- Keeps the record of an end that is not stored yet, before it is changed ('COPY') or removed ('RENAME').
  keep = function(id, command, result)
    local score = redis.call('ZSCORE', keys.UNARCHIVED, id)
    if not score then return end
    local member = id .. '|' .. score
    redis.call('ZREM', keys.UNARCHIVED, id)
    local kept = redis.pcall(command, keys.rq_job(id), keys.kept_end(member))
    if type(kept) == 'table' and kept.err then return end
    redis.call('ZADD', keys.UNARCHIVED, score, member)
    if result then redis.pcall('HSET', keys.kept_end(member), 'result', result) end
  end,
}
