-- Numbers and instants, as Redis and RQ store them.

local function num(x) return string.format('%.0f', x) end

-- A stored value may be corrupt: returns nil for a value that is not a usable number (also nan, inf, 1e300).
local function number_of(text)
  local x = tonumber(text)
  if x and x > -9e15 and x < 9e15 then return x end
end

-- Returns an instant in RQ's format: 2026-11-21T08:45:00.123456Z. Days to date after Howard Hinnant's civil_from_days.
local function iso(us)
  local seconds = math.floor(us / 1000000)
  local days = math.floor(seconds / 86400)
  local rest = seconds - days * 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local day = doy - math.floor((153 * mp + 2) / 5) + 1
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, day, math.floor(rest / 3600),
    math.floor(rest % 3600 / 60), rest % 60, us - seconds * 1000000)
end

-- Returns the microseconds of such an instant, or nil; days from date after Hinnant's days_from_civil.
local function microseconds(stamp_text)
  local y, mo, d, h, mi, s, us = string.match(stamp_text or '', '^(%d%d%d%d)-(%d%d)-(%d%d)T(%d%d):(%d%d):(%d%d)%.(%d%d%d%d%d%d)Z$')
  if not y then return nil end
  y, mo = tonumber(y), tonumber(mo)
  if mo <= 2 then y = y - 1 end
  local era = math.floor(y / 400)
  local yoe = y - era * 400
  local doy = math.floor((153 * (mo > 2 and mo - 3 or mo + 9) + 2) / 5) + tonumber(d) - 1
  local days = era * 146097 + yoe * 365 + math.floor(yoe / 4) - math.floor(yoe / 100) + doy - 719468
  return ((days * 24 + h) * 60 + mi) * 60000000 + s * 1000000 + tonumber(us)
end
