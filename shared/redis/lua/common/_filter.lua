-- Included by the scripts that filter tasks by their records.

-- Returns fields of a hash by their names; nil when the key is not a hash.
local function hash_of(key, ...)
  local values = redis.pcall('HMGET', key, ...)
  if not values.err then return by_name(values, {...}) end
end

local function has_tag(tags, wanted)
  for _, each in ipairs(tags_of(tags)) do
    if each == wanted then return true end
  end
  return false
end

-- Returns whether a record matches all criteria; "" matches any value.
local function matches(t, wanted)
  return (wanted.state == '' or t.state == wanted.state) and (wanted.type == '' or t.description == wanted.type)
    and (wanted.queue == '' or t.origin == wanted.queue) and (wanted.tag == '' or has_tag(t.tags, wanted.tag))
    and ((wanted.submitted_by or '') == '' or t.submitted_by == wanted.submitted_by)
    and ((wanted.bulk or '') == '' or t.bulk == wanted.bulk)
end

-- More criteria: `more` is a table with any of id (its beginning or its end), error (a part of it, in
-- any case of ASCII letters), worker and version (of its last attempt), created_from, created_to (microseconds), min_score,
-- max_score, and data, a list of {path, text, number, word} (`shared/domain/search.py`). One table, as Lua has room for 200
-- local names in a script.
-- `cost` counts each further command, each 4 kB that were read, and each 256 bytes of data, which are scanned once for each
-- name of a path, as one more task.
local search = {cost = 0}

-- Return the position after a string of a JSON text, after any value, and of the first character that is not a space.
function search.string_end(s, at)
  local from = at + 1
  while true do
    local mark = string.find(s, '["\\]', from)
    if not mark then return nil end
    if string.byte(s, mark) == 34 then return mark + 1 end
    from = mark + 2
  end
end

function search.value_end(s, at)
  local first = string.byte(s, at)
  if first == 34 then return search.string_end(s, at) end
  if first ~= 123 and first ~= 91 then return string.find(s, '[,%]}%s]', at) or #s + 1 end
  local depth, from = 0, at
  while true do
    local mark = string.find(s, '["{}%[%]]', from)
    if not mark then return nil end
    local kind = string.byte(s, mark)
    if kind == 34 then from = search.string_end(s, mark)
    else
      depth, from = depth + ((kind == 123 or kind == 91) and 1 or -1), mark + 1
      if depth == 0 then return from end
    end
    if not from then return nil end
  end
end

function search.skip(s, at) return string.find(s, '[^%s]', at) end

-- Returns a string of JSON without its quotes; nil when it is not valid.
function search.unquoted(quoted)
  if not string.find(quoted, '\\', 1, true) then return string.sub(quoted, 2, -2) end
  local readable, list = pcall(cjson.decode, '[' .. quoted .. ']')
  return readable and list[1] or nil
end

-- Returns where the value of a member of an object begins: the last one, as parsers have it.
function search.member(s, at, name)
  local found
  local from = string.byte(s, at) == 123 and search.skip(s, at + 1)
  while from and string.byte(s, from) == 34 do
    local behind = search.string_end(s, from)
    local colon = behind and string.find(s, ':', behind, true)
    local value = colon and search.skip(s, colon + 1)
    local after = value and search.value_end(s, value)
    if not after then return found end
    if search.unquoted(string.sub(s, from, behind - 1)) == name then found = value end
    local mark = string.find(s, '[,}]', after)
    from = mark and string.byte(s, mark) == 44 and search.skip(s, mark + 1)
  end
  return found
end

-- Returns the one text of all spellings of a number; a double would lose digits.
function search.canonical(token)
  local sign, whole, rest = string.match(token, '^(%-?)(%d+)(.*)$')
  if not sign then return nil end
  local fraction, behind = string.match(rest, '^%.(%d+)(.*)$')
  fraction, rest = fraction or '', behind or rest
  local exponent = rest == '' and 0 or tonumber(string.match(rest, '^[eE]([+-]?%d+)$'))
  if not exponent then return nil end
  local digits = string.match(whole .. fraction, '^0*(%d*)$')
  local shortest = string.sub(digits, 1, -1 - #string.match(string.reverse(digits), '^0*'))
  return shortest == '' and '0' or sign .. shortest .. 'e' .. num(exponent - #fraction + #digits - #shortest)
end

-- Returns whether the value that begins there is one of the forms of the wanted one; an object and a list are not.
function search.is(s, at, wanted)
  local after = search.value_end(s, at)
  local first = string.byte(s, at)
  if not after or first == 123 or first == 91 then return false end
  local token = string.sub(s, at, after - 1)
  if first == 34 then return search.unquoted(token) == wanted.text end
  return (wanted.word ~= nil and token == wanted.word)
    or (wanted.number ~= nil and search.canonical(token) == wanted.number)
end

-- Returns whether stored data has a value at a path, or in a list there. Data that is a payload, or that was stored by a
-- tool of RQ, has none.
function search.has_value(stored, wanted)
  local at = string.match(stored or '', '^%["[%w._]+",null,%["[^"\\]*",()')
  for _, name in ipairs(wanted.path) do at = at and search.member(stored, at, name) end
  if not at then return false end
  if string.byte(stored, at) ~= 91 then return search.is(stored, at, wanted) end
  local from = search.skip(stored, at + 1)
  while from and string.byte(stored, from) ~= 93 do
    if search.is(stored, from, wanted) then return true end
    local after = search.value_end(stored, from)
    local mark = after and string.find(stored, '[,%]]', after)
    from = mark and string.byte(stored, mark) == 44 and search.skip(stored, mark + 1)
  end
  return false
end

function search.object(text)
  local readable, value = pcall(cjson.decode, text or '')
  return readable and type(value) == 'table' and value or {}
end

-- Returns worker and version of the last attempt, or of the one that runs.
function search.attempt(key, t)
  if t.state == 'running' then
    search.cost = search.cost + 1
    local beat = redis.pcall('GET', keys.worker(t.worker_name or ''))
    return t.worker_name, type(beat) == 'string' and string.match(beat, '"app_version": "([^"]*)"') or nil
  end
  local about = redis.call('HGET', key, 'attempt:' .. (t.attempt or ''))
  search.cost = search.cost + 1 + #(about or '') / 4096
  about = search.object(about)
  return about.worker, about.app_version
end

function search.has_error(t, wanted)
  local error = t.state ~= 'completed' and search.object(t.error) or {}
  if type(error.type) ~= 'string' or type(error.message) ~= 'string' then return false end
  return string.find(string.lower(error.type .. ': ' .. error.message), string.lower(wanted), 1, true) ~= nil
end

function search.matches(key, id, more)
  if not more then return true end
  if more.id and string.sub(id, 1, #more.id) ~= more.id and string.sub(id, -#more.id) ~= more.id then return false end
  local t = hash_of(key, 'state', 'error', 'attempt', 'worker_name', 'created_at', more.data and 'data' or 'state', 'score', 'enqueued_at')
  if not t or not t.state then return false end
  search.cost = search.cost + 1 + (#(t.error or '') + (more.data and #(t.data or '') or 0)) / 4096
  local created = microseconds(t.created_at)
  if more.created_from and not (created and created >= more.created_from) then return false end
  if more.created_to and not (created and created <= more.created_to) then return false end
  local score = tonumber(t.score) or (microseconds(t.enqueued_at) or 0) / 1000
  if score < (more.min_score or 0) or score > (more.max_score or score) then return false end
  if more.error and not search.has_error(t, more.error) then return false end
  if more.worker or more.version then
    local worker, version = search.attempt(key, t)
    if (more.worker and worker ~= more.worker) or (more.version and version ~= more.version) then return false end
  end
  for _, each in ipairs(more.data or {}) do
    search.cost = search.cost + #each.path * #(t.data or '') / 256
    if not search.has_value(t.data, each) then return false end
  end
  return true
end
