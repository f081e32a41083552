-- Dead letters with the same cause form a group.

-- Returns the failure fingerprint of a dead letter: type, error class, place in the code, and message without numbers
-- and ids. `place` and `pattern` come with the error (shared/domain/failure_fingerprint.py).
local function fingerprint_of(id)
  local t = record(id, 'description', 'error')
  local ok, error = pcall(cjson.decode, t and t.error or '')
  if not ok or type(error) ~= 'table' then return 'unreadable' end
  local function word(x) return type(x) == 'string' and x or '' end
  return string.sub(redis.sha1hex((t.description or '') .. '\n' .. word(error.type) .. '\n' .. word(error.place) .. '\n' ..
    word(error.pattern)), 1, 16)
end

local function count_cause(cause)
  local key = keys.failure_group(cause)
  local left = redis.call('ZCARD', key)
  if left > 0 then redis.call('ZADD', keys.FAILURE_GROUPS, left, cause)
  else redis.call('ZREM', keys.FAILURE_GROUPS, cause) end
end

local function leave_failure_group(id)
  local cause = redis.call('HGET', keys.FAILURE_GROUP_OF, id)
  if not cause then return end
  redis.call('HDEL', keys.FAILURE_GROUP_OF, id)
  redis.call('ZREM', keys.failure_group(cause), id)
  count_cause(cause)
end

local function join_failure_group(id)
  leave_failure_group(id)
  local cause = fingerprint_of(id)
  redis.call('HSET', keys.FAILURE_GROUP_OF, id, cause)
  redis.call('ZADD', keys.failure_group(cause), NOW, id)
  count_cause(cause)
  redis.call('SET', keys.first_seen(cause), NOW, 'NX')
  redis.call('EXPIRE', keys.first_seen(cause), 2592000) -- 30 days after the last dead letter of a group
end
