-- Included by the scripts that examine the tasks of a bulk action: index by index, each in ascending order.
-- A place is {at (which index), score, id} of the last task that was examined. Tasks may leave the indexes meanwhile.

-- Returns the rank of the first entry after a place, or of the first that is not too early.
local function rank_behind(key, place, earliest)
  if place.id == '' then return redis.call('ZCOUNT', key, '-inf', '(' .. earliest) end
  local before = redis.call('ZCARD', key) - place_behind(key, place.score, place.id)
  local there = redis.call('ZSCORE', key, place.id)
  return there and tonumber(there) == tonumber(place.score) and before + 1 or before
end

local MATCHED = {'state', 'description', 'origin', 'tags', 'created_at', 'bulk', 'submitted_by'}

-- Returns whether a task is wanted. A corrupt record has no state; it is wanted where only a state is named.
local function takes(wanted, t, key, id)
  if wanted.any then return true end
  if not t.state then
    return not wanted.more and wanted.type .. wanted.queue .. wanted.tag .. wanted.submitted_by .. wanted.bulk == ''
  end
  return matches(t, wanted) and search.matches(key, id, wanted.more)
end

-- Calls `visit(id, record)` for at most so many tasks after a place, as long as it returns true, and moves the
-- place. `wanted` is a filter; tasks that are younger than it have no part. Returns how many were examined, and whether
-- these were the last.
local function examine(place, wanted, most, visit)
  local looked, spent = 0, 0 -- an index costs as much as a task: there may be many empty ones
  while wanted.sources[place.at] do
    if spent >= most then return looked, false end
    local key = wanted.sources[place.at]
    local from = rank_behind(key, place, wanted.earliest)
    local entries = redis.call('ZRANGE', key, from, from + most - spent - 1, 'WITHSCORES')
    for at = 1, #entries, 2 do
      local id, score = entries[at], entries[at + 1]
      if tonumber(score) > tonumber(wanted.latest) then break end
      looked, spent, place.score, place.id = looked + 1, spent + 1, score, id
      local stored = key == keys.DELETED and keys.deleted(id) or keys.rq_job(id)
      local t = hash_of(stored, unpack(MATCHED)) or {}
      local young = (microseconds(t.created_at) or 0) > wanted.begun_at
      if not young and takes(wanted, t, stored, id) and not visit(id, t) then return looked, false end
      if spent + search.cost >= most then return looked, false end
    end
    if spent + search.cost >= most then return looked, false end
    place.at, place.score, place.id, spent = place.at + 1, '', '', spent + 1
  end
  return looked, true
end

-- Returns the stored filter of an action, or nil for a corrupt one.
local function read_wanted(text)
  local readable, wanted = pcall(cjson.decode, text or '')
  if not readable or type(wanted) ~= 'table' or type(wanted.sources) ~= 'table' then return nil end
  for _, name in ipairs({'state', 'type', 'queue', 'tag', 'submitted_by', 'bulk'}) do
    if type(wanted[name]) ~= 'string' then return nil end
  end
  if (wanted.more and type(wanted.more) ~= 'table') or (wanted.limit and type(wanted.limit) ~= 'number') then return nil end
  if not (number_of(wanted.earliest) and number_of(wanted.latest) and number_of(wanted.begun_at)) then return nil end
  return wanted
end
