-- Part of `check_consistency.lua`: the structures that a pass goes through.

local sources = {keys.TASKS}
for _, state in ipairs(STATES) do
  if state == 'pending' or state == 'scheduled' or state == 'retrying' then
    for _, queue in ipairs(queues) do
      sources[#sources + 1] = index_key(state, queue)
      if state == 'pending' then sources[#sources + 1] = keys.throttled(queue) end
    end
  else
    sources[#sources + 1] = index_key(state, '')
  end
end
sources[#sources + 1] = keys.UNIQUE
sources[#sources + 1] = RECORDS

-- Both return the score and the id to continue after, or nothing at the end.
local function check_index(key, score, id)
  local left = most - looked
  local reply = redis.call('ZRANGEBYSCORE', key, score ~= '' and score or '-inf', '+inf', 'WITHSCORES', 'LIMIT', 0, left)
  local fresh = 0
  for at = 1, #reply, 2 do
    if reply[at + 1] ~= score or reply[at] > id then
      inspect(reply[at])
      fresh, looked = fresh + 1, looked + 1
    end
  end
  if #reply < 2 * left then return nil end
  if fresh == 0 then return '(' .. score, '' end
  return reply[#reply], reply[#reply - 1]
end

local function check_records(cursor)
  local reply = redis.call('SCAN', cursor ~= '' and cursor or '0', 'MATCH', keys.rq_job('*'), 'COUNT', most)
  looked = looked + most
  for _, key in ipairs(reply[2]) do
    local id = string.sub(key, #keys.rq_job('') + 1)
    local t = record(id, 'state')
    if t and t.state and not redis.call('ZSCORE', keys.TASKS, id) then inspect(id) end
  end
  if reply[1] == '0' then return nil end
  return '', reply[1]
end

-- Frees keys whose holder has ended, or is removed.
local function check_unique_keys(cursor)
  local reply = redis.call('HSCAN', keys.UNIQUE, cursor ~= '' and cursor or '0', 'COUNT', most)
  looked = looked + #reply[2] / 2
  for at = 1, #reply[2], 2 do
    local t = record(reply[2][at + 1], 'state', 'unique')
    if not (t and t.state and t.unique == reply[2][at] and not ENDED[t.state]) then
      redis.call('HDEL', keys.UNIQUE, reply[2][at])
      found('unique_key')
    end
  end
  if reply[1] == '0' then return nil end
  return '', reply[1]
end

local function check_source(source, score, id)
  if source == RECORDS then return check_records(id) end
  if source == keys.UNIQUE then return check_unique_keys(id) end
  return check_index(source, score, id)
end
