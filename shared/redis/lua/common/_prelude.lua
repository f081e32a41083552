-- Put in front of every script: time, key names and the small steps that scripts share.
-- The first argument of every script is the instant to work with in microseconds, or "" to ask this server. No
-- client's clock decides anything in production; tests hand the instant over instead of waiting.
-- Numbers go to Redis as text made by num(): Lua's own conversion keeps 14 digits, and a microsecond has 16.

-- A step of one version must not touch data of another; no number means that nothing has been written yet.
local FORMAT = '2'
local stored_format = redis.call('GET', 'taskqueue:format')
if stored_format and stored_format ~= FORMAT then
  return redis.error_reply('FORMAT the data in Redis is of format ' .. stored_format .. ' and this version writes ' ..
    FORMAT .. ': another version has taken over')
end

local function read_clock(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local now = read_clock(ARGV[1])

local function num(x) return string.format('%.0f', x) end

-- What is stored may have been damaged by hand: nil for what is no number, or none to reckon with (nan, inf, 1e300).
local function number_of(text)
  local x = tonumber(text)
  if x and x > -9e15 and x < 9e15 then return x end
end

-- An instant as RQ writes it: 2026-11-21T08:45:00.123456Z. Days to date after Howard Hinnant's civil_from_days.
local function iso(us)
  local seconds = math.floor(us / 1000000)
  local days = math.floor(seconds / 86400)
  local rest = seconds - days * 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day, math.floor(rest / 3600),
    math.floor(rest % 3600 / 60), rest % 60, us - seconds * 1000000)
end

-- The same back again, or nil; days from date after Hinnant's days_from_civil.
local function microseconds(stamp_text)
  local y, mo, d, h, mi, s, us = string.match(stamp_text or '', '^(%d%d%d%d)-(%d%d)-(%d%d)T(%d%d):(%d%d):(%d%d)%.(%d%d%d%d%d%d)Z$')
  if not y then return nil end
  y, mo = tonumber(y), tonumber(mo)
  if mo <= 2 then y = y - 1 end
  local era = math.floor(y / 400)
  local yoe = y - era * 400
  local doy = math.floor((153 * (mo > 2 and mo - 3 or mo + 9) + 2) / 5) + tonumber(d) - 1
  local days = era * 146097 + yoe * 365 + math.floor(yoe / 4) - math.floor(yoe / 100) + doy - 719468
  return ((days * 24 + h) * 60 + mi) * 60000000 + s * 1000000 + tonumber(us)
end

local NOW = num(now)
local TASKS, BLOCKED, LEASES = 'taskqueue:tasks', 'taskqueue:blocked', 'taskqueue:leases'
local DEADLINES, BELL, PAUSED = 'taskqueue:deadlines', 'taskqueue:bell', 'taskqueue:paused'
local STANDING = 'taskqueue:standing'

local function job_key(id) return 'rq:job:' .. id end

-- Which of our indexes holds a task of this state.
local function index_key(state, queue)
  if state == 'pending' or state == 'scheduled' or state == 'retrying' then
    return 'taskqueue:' .. state .. ':' .. queue
  end
  if state == 'running' then return LEASES end
  return 'taskqueue:' .. state
end

-- Which of RQ's structures mirrors it; pending is a list and running has a member of its own, so neither is here.
local RQ_REGISTRY = {
  scheduled = 'rq:scheduled:', retrying = 'rq:scheduled:', blocked = 'rq:deferred:', completed = 'rq:finished:',
  failed = 'rq:failed:', cancelled = 'rq:canceled:', expired = 'rq:canceled:',
}
local RQ_STATUS = {
  scheduled = 'scheduled', retrying = 'scheduled', blocked = 'deferred', pending = 'queued', running = 'started',
  completed = 'finished', failed = 'failed', cancelled = 'canceled', expired = 'canceled',
}

-- A housekeeping step names the lock that it acts under and shows its token ("" for neither). It is asked in the step
-- that changes data: whoever slept past the end of a lock cannot know that somebody else has taken it since.
local function outlived(lock, token)
  if not token or token == '' then return false end
  local v = redis.call('HMGET', 'taskqueue:housekeeper:lock:' .. lock, 'token', 'until')
  return v[1] ~= token or (number_of(v[2]) or 0) <= now
end
local OUTLIVED = {err = 'OUTLIVED the lock of this step has ended, or somebody else has taken it'}

-- Fields of a record, or nil when the key is no hash.
local function fields(id, ...)
  local values = redis.pcall('HMGET', job_key(id), ...)
  if values.err then return nil end
  return values
end

-- What was answered to the first request with its key; where nobody can read that, the state of the task that it stored.
local function kept_answer(id, text)
  local readable, answer = pcall(cjson.decode, text)
  if readable and (type(answer) == 'string' or (type(answer) == 'table' and answer[3])) then return answer end
  local v = fields(id, 'state')
  return v and v[1] or 'pending'
end

-- What a dead letter died of: tasks of one type that failed with one error, in one place of the code, with one message
-- but for its numbers and ids, died of the same. `place` and `pattern` come with the error (shared/domain/failure_fingerprint.py).
local function cause_of(id)
  local v = fields(id, 'description', 'error')
  local ok, error = pcall(cjson.decode, v and v[2] or '')
  if not ok or type(error) ~= 'table' then return 'unreadable' end
  local function word(x) return type(x) == 'string' and x or '' end
  return string.sub(redis.sha1hex((v[1] or '') .. '\n' .. word(error.type) .. '\n' .. word(error.place) .. '\n' ..
    word(error.pattern)), 1, 16)
end

local FIRST_SEEN_KEPT = 2592000 -- 30 days after the last dead letter of a cause

local function count_cause(cause)
  local key = 'taskqueue:cause:' .. cause
  local left = redis.call('ZCARD', key)
  if left > 0 then redis.call('ZADD', 'taskqueue:causes', left, cause)
  else redis.call('ZREM', 'taskqueue:causes', cause) end
end

local function leave_cause(id)
  local cause = redis.call('HGET', 'taskqueue:cause-of', id)
  if not cause then return end
  redis.call('HDEL', 'taskqueue:cause-of', id)
  redis.call('ZREM', 'taskqueue:cause:' .. cause, id)
  count_cause(cause)
end

local function join_cause(id)
  leave_cause(id)
  local cause = cause_of(id)
  redis.call('HSET', 'taskqueue:cause-of', id, cause)
  redis.call('ZADD', 'taskqueue:cause:' .. cause, NOW, id)
  count_cause(cause)
  redis.call('SET', 'taskqueue:first-seen:' .. cause, NOW, 'NX')
  redis.call('EXPIRE', 'taskqueue:first-seen:' .. cause, FIRST_SEEN_KEPT)
end

-- A unique key is held by one task until that task starts or ends, or for a time, whatever becomes of the task. The
-- first two are a hash of keys to ids, let go in the step that starts or ends the task; who asks believes an entry only
-- if the record says the same. The third is a key of Redis' own, which it removes by itself.
local UNIQUE = 'taskqueue:unique'
local ENDED = {completed = true, failed = true, cancelled = true, expired = true}

-- Who holds a unique key, and in which state that task is ("" when its record is gone).
local function unique_holder(key)
  local id = redis.call('HGET', UNIQUE, key)
  if id then
    local v = fields(id, 'state', 'unique')
    if v and v[1] and v[2] == key and not ENDED[v[1]] then return id, v[1] end
  end
  id = redis.call('GET', 'taskqueue:unique-for:' .. key)
  local v = id and fields(id, 'state')
  return id, v and v[1] or ''
end

local function hold_unique(id, key, until_)
  if tonumber(until_) then redis.call('SET', 'taskqueue:unique-for:' .. key, id, 'PX', until_)
  else redis.call('HSET', UNIQUE, key, id) end
end

local function release_unique(id, key)
  if key and redis.call('HGET', UNIQUE, key) == id then redis.call('HDEL', UNIQUE, key) end
end

-- A task that comes back to waiting holds its key again, unless another has taken it since.
local function hold_unique_again(id, scopes)
  local v = fields(id, 'unique', 'unique_until')
  if v and v[1] and scopes[v[2]] then redis.call('HSETNX', UNIQUE, v[1], id) end
end

-- Takes a pending task out of the line that it stands aside in (see `_limits.lua`).
local function leave_line(id, queue)
  if redis.call('ZREM', 'taskqueue:aside:' .. queue, id) == 0 then return end
  local v = fields(id, 'line')
  if v and v[1] then
    redis.call('ZREM', 'taskqueue:line:' .. v[1], id)
    redis.call('HDEL', job_key(id), 'line')
  end
  redis.call('ZREM', 'rq:deferred:' .. queue, id)
end

-- Takes a task out of the structures of its state.
local function leave(id, state, queue, token)
  local there = redis.call('ZREM', index_key(state, queue), id)
  if state == 'pending' and there == 0 then leave_line(id, queue) end
  if state == 'running' then
    redis.call('ZREM', 'rq:wip:' .. queue, id .. ':' .. token)
  elseif RQ_REGISTRY[state] then
    redis.call('ZREM', RQ_REGISTRY[state] .. queue, id)
  end
  if state == 'failed' then leave_cause(id) end
end

-- Puts a task into the structures of a final state. RQ's score is +inf: only our retention removes a record.
local function enter_ended(id, state, queue)
  redis.call('ZADD', 'taskqueue:' .. state, NOW, id)
  redis.call('ZADD', RQ_REGISTRY[state] .. queue, '+inf', id)
  local v = fields(id, 'unique')
  if v then release_unique(id, v[1]) end
  if state == 'failed' then join_cause(id) end
end

-- Puts a task into the structures of a state that has a due time.
local function enter_due(id, state, queue, due)
  redis.call('ZADD', index_key(state, queue), num(due), id)
  redis.call('ZADD', RQ_REGISTRY[state] .. queue, num(math.floor(due / 1000000)), id)
end

-- A task that is to start by a moment is found by the expire script from here on.
local function watch_deadline(id, expires_at)
  if number_of(expires_at) then redis.call('ZADD', DEADLINES, expires_at, id) end
end

-- Wakes idle workers of a queue; without one any worker, for what all can do. The bound keeps a burst from leaving
-- thousands of stale rings behind; a worker that is woken and finds more than it can take rings for the next one.
local function ring(tasks, queue)
  local bell = queue and BELL .. ':' .. queue or BELL
  local rings = math.min(tasks, 64 - redis.call('LLEN', bell))
  for _ = 1, rings do redis.call('RPUSH', bell, queue or '') end
end

-- A full Redis (maxmemory) refuses a script's first write when that could grow memory, and lets it finish once it has
-- written. Steps that end or free something, or that people need in such trouble, begin with a write that is never
-- refused, so that work already done can still be recorded; what is new (tasks, schedules) is what a full Redis turns away.
local function write_even_when_full() redis.call('DEL', 'taskqueue:nothing') end

-- Adds to the counts of this minute.
local function count(what, n)
  if n == 0 then return end
  local key = 'taskqueue:throughput:' .. num(math.floor(now / 60000000))
  if redis.call('HINCRBY', key, what, n) == n then redis.call('EXPIRE', key, 7200) end
end

-- Adds to a number of a record; one that was damaged counts as none.
local function bump(id, field, present, by)
  local value = (number_of(present) or 0) + by
  redis.call('HSET', job_key(id), field, value)
  return value
end

-- One item of an attempt's history; the oldest goes when there are more than 50.
local function remember(id, attempt, record)
  redis.call('HSET', job_key(id), 'attempt:' .. attempt, record)
  if attempt > 50 then redis.call('HDEL', job_key(id), 'attempt:' .. num(attempt - 50)) end
end

-- A record's metadata with the span that sent the task back, and after which attempt; "" for no span. It is put in front
-- of the rest, which stays to the letter: decoding it and encoding it again would not keep it.
local function replayed(meta, cause, attempt)
  local rest = string.gsub(meta or '{}', '^{"replay":"[^"]*","replay_after":%d+,?', '{')
  if cause == '' or string.sub(rest, 1, 1) ~= '{' then return rest end
  local head = '{"replay":"' .. cause .. '","replay_after":' .. num(number_of(attempt) or 0)
  return head .. (rest == '{}' and '}' or ',' .. string.sub(rest, 2))
end

local function note_replay(id, meta, cause, attempt)
  if meta or cause ~= '' then redis.call('HSET', job_key(id), 'meta', replayed(meta, cause, attempt)) end
end

-- A list that a record keeps in JSON; empty where nobody can read it, and where it is longer than any that the API takes:
-- who writes to Redis by hand must not keep it busy. `most` is in bytes.
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

-- RQ programs may enqueue into a queue of ours. A job of theirs has a record without our `state`; the copies of our
-- schedules that rq-scheduler's tools list have none either, and are not jobs.
local function is_foreign(id)
  local size = redis.pcall('HLEN', job_key(id))
  if type(size) ~= 'number' or size == 0 or redis.call('HEXISTS', job_key(id), 'state') == 1 then return false end
  local schedule = string.match(id, '^(.*)%-entry$')
  return not schedule or redis.call('EXISTS', 'taskqueue:schedule:' .. schedule) == 0
end

-- Whether a parked job is still to be run by RQ.
local function waits_for_rq(id)
  local status = is_foreign(id) and (redis.call('HGET', job_key(id), 'status') or 'queued')
  return status == 'queued' or status == 'created'
end

-- Parks the foreign jobs among queue entries that lead to no pending task, before these leave the list. Their records
-- stay as they are. Entries of our own are hints; those without a record RQ drops as well. Returns the commands it took.
local function park_foreign(queue, ids)
  if #ids == 0 then return 0 end
  local key, parked, looked = 'taskqueue:foreign:' .. queue, {}, 0
  local listed, last = redis.call('ZMSCORE', TASKS, unpack(ids)), redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  local first = math.max(now, (number_of(last) or 0) + 1)
  for at, id in ipairs(ids) do
    if not listed[at] then
      looked = looked + 1
      if is_foreign(id) then
        parked[#parked + 1] = num(first + #parked / 2)
        parked[#parked + 1] = id
      end
    end
  end
  if #parked > 0 then redis.call('ZADD', key, 'NX', unpack(parked)) end
  return 3 + 2 * looked
end

-- What the handler returned, as RQ's stream keeps it: base64 of JSON; nil when it has returned nothing. A stock worker
-- that took an entry of ours may have added a failure behind it.
local function result_of(id)
  local entries = redis.pcall('XREVRANGE', 'rq:results:' .. id, '+', '-', 'COUNT', 10)
  for _, entry in ipairs(entries.err and {} or entries) do
    for at = 1, #entry[2], 2 do
      if entry[2][at] == 'return_value' then return entry[2][at + 1] end
    end
  end
end

-- Removes every trace of a task from every structure that could hold it.
local function remove(id, state, queue, token)
  local values = fields(id, 'description', 'tags', 'unique')
  leave(id, state, queue, token)
  redis.call('ZREM', TASKS, id)
  redis.call('ZREM', DEADLINES, id)
  if values and values[1] then redis.call('ZREM', 'taskqueue:tasks:type:' .. values[1], id) end
  if values then release_unique(id, values[3]) end
  for _, tag in ipairs(tags_of(values and values[2])) do redis.call('ZREM', 'taskqueue:tasks:tag:' .. tag, id) end
  redis.call('UNLINK', job_key(id), 'rq:results:' .. id)
end
