-- @include _prelude
-- Writes the states of alerts, and messages about them, in one step.
-- ARGV: now, lock and token of the caller, JSON object with alerts (key to record, "" for an ended one) and messages
--   (id to message, "" for one that was sent), some hundreds at most, and a list of additions to the log (JSON).
-- Returns 1. A full Redis takes it too: that is one of the alerts.
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
write_even_when_full()
local given = cjson.decode(ARGV[4])
for key, entries in pairs({[keys.ALERTS] = given.alerts, [keys.ALERT_MESSAGES] = given.messages}) do
  local over, kept = {}, {}
  for name, entry in pairs(entries) do
    if entry == '' then
      over[#over + 1] = name
    else
      kept[#kept + 1] = name
      kept[#kept + 1] = entry
    end
  end
  if #over > 0 then redis.call('HDEL', key, unpack(over)) end
  if #kept > 0 then redis.call('HSET', key, unpack(kept)) end
end
local LOGGED = 1000
for _, entry in ipairs(given.log or {}) do redis.call('ZADD', keys.ALERT_LOG, NOW, entry) end
local old = given.log and redis.call('ZRANGE', keys.ALERT_LOG, 0, -1 - LOGGED) or {}
if #old > 0 then redis.call('ZREM', keys.ALERT_LOG, unpack(old)) end
return 1
