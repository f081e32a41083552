-- @include _prelude _paging
-- Reads one page of a list; changes nothing.
-- ARGV: now (not used), "" or the score and "" or the id of the last task of the page before, how many to return, how
--   many to examine, then "" or the wanted: state, type, queue, tag, earliest and latest score; then the index keys.
-- Returns {score, id (of the last task looked at, both "" at the end), one list per task: id, score, fields...}.
-- Several indexes are merged, newest first. The cost of a page is bounded by how many it may examine, however many
-- tasks there are: when few match, the page is short and its cursor continues.
local limit, budget = tonumber(ARGV[4]), tonumber(ARGV[5])
local state, task_type, queue, tag = ARGV[6], ARGV[7], ARGV[8], ARGV[9]
local earliest = ARGV[10] ~= '' and ARGV[10] or '-inf'
local latest = ARGV[11] ~= '' and ARGV[11] or '+inf'
local NAMES = {'state', 'description', 'origin', 'attempt', 'failures', 'crashes', 'created_at', 'started_at', 'ended_at',
  'due_at', 'worker_name', 'tags', 'error', 'progress'}
local CHUNK = math.min(budget, math.max(limit, 16)) + 1

-- Returns an index from the end of the last page (or from its top) to the last entry that is not too old, both as ranks.
local function source_of(key)
  local from = 0
  if ARGV[2] ~= '' then from = place_behind(key, ARGV[2], ARGV[3])
  elseif latest ~= '+inf' then from = redis.call('ZCOUNT', key, '(' .. latest, '+inf') end
  return {key = key, from = from, to = redis.call('ZCOUNT', key, earliest, '+inf'), entries = {}, at = 1}
end

local function read_on(source)
  local behind = math.min(source.from + CHUNK, source.to)
  local reply = redis.call('ZREVRANGE', source.key, source.from, behind - 1, 'WITHSCORES')
  source.from, source.entries, source.at = behind, {}, 1
  for at = 1, #reply, 2 do table.insert(source.entries, {id = reply[at], score = reply[at + 1]}) end
end

local function head(source)
  if source.at > #source.entries and source.from < source.to then read_on(source) end
  return source.entries[source.at]
end

local function newer(a, b)
  local x, y = tonumber(a.score), tonumber(b.score)
  return x > y or (x == y and precedes(b.id, a.id))
end

local sources = {}
for at, key in ipairs(existing_keys({unpack(ARGV, 12)})) do sources[at] = source_of(key) end

local function next_entry()
  local best
  for _, source in ipairs(sources) do
    local entry = head(source)
    if entry and (not best or newer(entry, best.entries[best.at])) then best = source end
  end
  if not best then return nil end
  best.at = best.at + 1
  return best.entries[best.at - 1]
end

local function has_tag(tags)
  for _, each in ipairs(tags_of(tags)) do
    if each == tag then return true end
  end
  return false
end

local function matches(t)
  return (state == '' or t.state == state) and (task_type == '' or t.description == task_type)
    and (queue == '' or t.origin == queue) and (tag == '' or has_tag(t.tags))
end

local function item(entry, t)
  local values = {entry.id, entry.score}
  for at, name in ipairs(NAMES) do values[at + 2] = t[name] or false end
  return values
end

local items, looked, last, more = {}, 0, nil, true
while #items < limit and looked < budget do
  local entry = next_entry()
  if not entry then
    more = false
    break
  end
  looked = looked + 1
  last = entry
  local t = record(entry.id, unpack(NAMES))
  if not t then
    if state == '' or state == 'failed' then items[#items + 1] = {entry.id, entry.score} end
  elseif matches(t) then
    items[#items + 1] = item(entry, t)
  end
end
if more then
  more = false
  for _, source in ipairs(sources) do
    if head(source) then more = true end
  end
end
return {more and last.score or '', more and last.id or '', unpack(items)}
