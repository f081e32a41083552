-- Part of `report.lua`: counts attempts by version and type, for alerts about deploys. An hour has a bounded number of these.
local by_version = {counts = {}, kinds = {completed = 'completed', failed = 'failed', retrying = 'failed'}, most = 5000}
function by_version.note(id, about, way)
  local kind = by_version.kinds[way]
  if not kind or not string.find(about, '"app_version":"', 1, true) then return end
  local version = string.match(about, '"app_version":"([%w._+:/@-]+)"')
  local task_type = version and redis.call('HGET', keys.rq_job(id), 'description')
  if not task_type then return end
  local field = version .. '|' .. task_type .. '|' .. kind
  by_version.counts[field] = (by_version.counts[field] or 0) + 1
end

function by_version.write()
  if not next(by_version.counts) then return end
  local key = keys.version_ends(num(math.floor(now / 3600000000)))
  local is_full = redis.call('HLEN', key) >= by_version.most
  for field, n in pairs(by_version.counts) do
    if not is_full or redis.call('HEXISTS', key, field) == 1 then redis.call('HINCRBY', key, field, n) end
  end
  redis.call('EXPIRE', key, 93600)
end
