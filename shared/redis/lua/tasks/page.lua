-- @include _prelude _paging _filter
-- Reads one page of a list; changes nothing.
-- ARGV: now (not used), "" or the score and "" or the id of the last task of the page before, how many to return, how
--   many to examine, then "" or the wanted: state, type, queue, tag, submitter, earliest and latest score, and the criteria
--   of `search` in _filter.lua (JSON); then the index keys.
-- Returns {score, id (of the last task looked at, both "" at the end), one list per task: id, score, fields...}.
-- Several indexes are merged, newest first. The cost of a page is bounded by how many it may examine, however many
-- tasks there are: when few match, the page is short and its cursor continues.
local limit, budget = tonumber(ARGV[4]), tonumber(ARGV[5])
local wanted = {state = ARGV[6], type = ARGV[7], queue = ARGV[8], tag = ARGV[9], submitted_by = ARGV[10]}
local earliest = ARGV[11] ~= '' and ARGV[11] or '-inf'
local latest = ARGV[12] ~= '' and ARGV[12] or '+inf'
local NAMES = {'state', 'description', 'origin', 'attempt', 'failures', 'crashes', 'created_at', 'started_at', 'ended_at',
  'due_at', 'worker_name', 'tags', 'error', 'progress', 'submitted_by', 'awaits', 'score', 'enqueued_at'}
local more_wanted = ARGV[13] ~= '' and cjson.decode(ARGV[13]) or nil
local deleted = ARGV[14] == keys.DELETED
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
for at, key in ipairs(existing_keys({unpack(ARGV, 14)})) do sources[at] = source_of(key) end

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

local function item(entry, t)
  local values = {entry.id, entry.score}
  for at, name in ipairs(NAMES) do values[at + 2] = t[name] or false end
  return values
end

local items, looked, last, more = {}, 0, nil, true
while #items < limit and looked + search.cost < budget do
  local entry = next_entry()
  if not entry then
    more = false
    break
  end
  looked = looked + 1
  last = entry
  local key = deleted and keys.deleted(entry.id) or keys.rq_job(entry.id)
  local t = hash_of(key, unpack(NAMES))
  if not t then
    if not more_wanted and (wanted.state == '' or wanted.state == 'failed') then items[#items + 1] = {entry.id, entry.score} end
  elseif matches(t, wanted) and (t.state or not deleted) and search.matches(key, entry.id, more_wanted) then
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
