-- Prepended to a script that failed on corrupt data: it is run again and quarantines that. A key of another type than
-- expected is renamed (`keys.quarantined`, for a week), listed in `keys.QUARANTINE`, and named in the audit
-- record; so is a stream that takes no more, because an entry has the last possible id. A count that is not a number
-- restarts; such a score is left out; corrupt JSON counts as empty. Scripts without corrupt data do not pay for this.
-- The schema version is not touched: data of unknown format must not be used.
local asked = redis
local json = cjson
local put_away

local function trouble(reply, words)
  return type(reply) == 'table' and reply.err and string.find(reply.err, words, 1, true)
end

local function note(command, key, ...)
  if trouble(asked.pcall(command, key, ...), 'WRONGTYPE') then
    put_away(key)
    asked.pcall(command, key, ...)
  end
end

function put_away(key)
  local name, time = keys.quarantined(key), asked.call('TIME')
  local held = asked.call('TYPE', key).ok
  asked.call('RENAME', key, name)
  asked.call('EXPIRE', name, 604800)
  note('ZADD', keys.QUARANTINE, time[1] .. string.format('%06d', time[2]), key)
  note('XADD', keys.AUDIT, 'MAXLEN', '~', 10000, '*', 'who', 'Firmq', 'what', 'set a damaged key aside',
    'about', key, 'detail', 'it held a ' .. held .. ', kept for a week as ' .. name)
  return held
end

local function call_with_quarantine(...)
  local reply, command, key, field = asked.pcall(...), ...
  if not trouble(reply, '') then return reply end
  if trouble(reply, 'WRONGTYPE') and key ~= keys.FORMAT then put_away(key)
  elseif command == 'XADD' and trouble(reply, ' ID') then put_away(key)
  elseif command == 'ZADD' and trouble(reply, 'not a valid float') then return 0
  elseif command == 'HINCRBY' and (trouble(reply, 'not an integer') or trouble(reply, 'overflow')) then
    asked.call('HDEL', key, field)
  end
  return asked.call(...)
end

local function decode(text)
  local readable, value = pcall(json.decode, text)
  return readable and type(value) == 'table' and value or {}
end

local redis = setmetatable({call = call_with_quarantine, quarantining = true}, {__index = asked})
local cjson = setmetatable({decode = decode}, {__index = json})
