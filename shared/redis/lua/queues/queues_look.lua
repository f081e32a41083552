-- @include _prelude
-- Shows the registered queues; changes nothing. ARGV: now (not used).
-- Returns {their names, the names of those with pending tasks}.
local names, of_key, indexes = redis.call('ZRANGE', keys.QUEUES, 0, -1), {}, {}
for _, name in ipairs(names) do
  for _, key in ipairs({keys.pending(name), keys.throttled(name)}) do
    indexes[#indexes + 1] = key
    of_key[key] = name
  end
end
local with_tasks = existing_keys(indexes)
for at, key in ipairs(with_tasks) do with_tasks[at] = of_key[key] end
return {names, with_tasks}
