-- Included by every script: the check of the data format, the clock, and the helpers in the files inserted below.
-- The first argument of every script is the instant to work with in microseconds, or "" to use this server's. In
-- production no client's clock decides anything; tests pass the instant instead of waiting.
-- Numbers go to Redis as text made by num(): Lua's own conversion keeps 14 digits, and a microsecond has 16.

-- A step of one version must not touch data of another; no number means that nothing was written yet.
local FORMAT = '7'
local stored_format = redis.call('GET', keys.FORMAT) or FORMAT
if stored_format ~= FORMAT then
  return redis.error_reply('FORMAT the data in Redis is of format ' .. stored_format .. ' and this version writes ' ..
    FORMAT .. ': another version has taken over')
end

local function read_clock(given)
  if given ~= '' then return tonumber(given) end
  local t = redis.call('TIME')
  return t[1] * 1000000 + t[2]
end

local now = read_clock(ARGV[1])

-- @insert _numbers

local NOW = num(now)


-- @insert _lanes
-- @insert _records
-- @insert _failure_groups
-- @insert _unique_keys
-- @insert _leave
-- @insert _unarchived
-- @insert _enter
-- @insert _transitions
-- @insert _fields
-- @insert _foreign
-- @insert _removal
