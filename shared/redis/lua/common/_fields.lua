-- Counts, and fields of records that several scripts write.

-- A full Redis (maxmemory) refuses a script's first write when that could grow memory, and lets it finish once it has
-- written. Steps that end or free something, or that operators need then, begin with a write that is never refused, so
-- that finished work can still be recorded; new data (tasks, schedules) is refused by a full Redis.
local function write_even_when_full() redis.call('DEL', keys.NOTHING) end

-- Adds to the counts of this minute.
local function count(what, n)
  if n == 0 then return end
  local key = keys.throughput(num(math.floor(now / 60000000)))
  if redis.call('HINCRBY', key, what, n) == n then redis.call('EXPIRE', key, 7200) end
end

-- Adds to a number of a record; a corrupt one counts as 0.
local function bump(id, field, present, by)
  local value = (number_of(present) or 0) + by
  redis.call('HSET', keys.rq_job(id), field, value)
  return value
end

-- Stores one attempt's record; the oldest is removed when there are more than 50.
local function remember(id, attempt, about)
  redis.call('HSET', keys.rq_job(id), 'attempt:' .. attempt, about)
  if attempt > 50 then redis.call('HDEL', keys.rq_job(id), 'attempt:' .. num(attempt - 50)) end
end

-- Returns a record's metadata with the span that requeued the task, and after which attempt; "" for no span. It is
-- prepended to the rest, which stays byte for byte: decoding and encoding again would change it.
local function replayed(meta, cause, attempt)
  local rest = string.gsub(meta or '{}', '^{"replay":"[^"]*","replay_after":%d+,?', '{')
  if cause == '' or string.sub(rest, 1, 1) ~= '{' then return rest end
  local head = '{"replay":"' .. cause .. '","replay_after":' .. num(number_of(attempt) or 0)
  return head .. (rest == '{}' and '}' or ',' .. string.sub(rest, 2))
end

local function note_replay(id, meta, cause, attempt)
  if meta or cause ~= '' then redis.call('HSET', keys.rq_job(id), 'meta', replayed(meta, cause, attempt)) end
end

-- Returns a list that a record stores in JSON; empty when corrupt, or longer than any that the API takes, so that a
-- forged one cannot keep Redis busy. `most` is in bytes.
local function list_of(text, most)
  if not text or #text > most then return {} end
  local readable, list = pcall(cjson.decode, text)
  return readable and type(list) == 'table' and list or {}
end

local function tags_of(text)
  local tags = {}
  for _, tag in ipairs(list_of(text, 16384)) do
    if type(tag) == 'string' and #tags < 16 then tags[#tags + 1] = tag end
  end
  return tags
end
