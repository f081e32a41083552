-- @include _prelude
-- Reads tasks with everything on record; changes nothing.
-- ARGV: now (not used), then the ids.
-- Returns per task, until they have MOST_BYTES together, {its record as alternating names and values (or "" when the key holds none), its result for RQ ("" when
--   it has none), how many tasks of its queue are before it (-1 unless pending), its fingerprint as a dead letter ("")}.
local function value_of(entry, wanted)
  for at = 1, #entry, 2 do
    if entry[at] == wanted then return entry[at + 1] end
  end
  return ''
end

local function position(id, queue)
  local rank = redis.pcall('ZRANK', keys.pending(queue), id)
  return type(rank) == 'number' and rank or -1
end

local function read(id)
  local all = redis.pcall('HGETALL', keys.rq_job(id))
  if all.err then return {'', '', -1, ''} end
  local state, queue = value_of(all, 'state'), value_of(all, 'origin')
  return {all, state == 'completed' and result_of(id) or '', state == 'pending' and position(id, queue) or -1,
    redis.call('HGET', keys.FAILURE_GROUP_OF, id) or ''}
end

local MOST_BYTES = 4 * 1024 * 1024
local answer, bytes = {}, 0
for at = 2, #ARGV do
  local found = read(ARGV[at])
  answer[#answer + 1], bytes = found, bytes + #found[2]
  for _, part in ipairs(found[1] ~= '' and found[1] or {}) do bytes = bytes + #part end
  if bytes > MOST_BYTES then break end
end
return answer
