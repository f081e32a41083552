-- @include _prelude _schedules
-- Stores a schedule by name. One that is stored with the same revision keeps its next time and its history.
-- ARGV: now, name, spec (JSON), revision of the spec, source, next time (microseconds or ""), then the revision that it
--   must have ("" for a name that must be free), or nothing; then an entry of rq-scheduler and its time, if the schedule
--   replaces it.
-- Returns {"created" | "changed" | "unchanged", the spec before ("" for none)}, or {"other", ...} with nothing changed.
local name, spec, revision, source, due = ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local key = keys.schedule(name)
local v = hash(key, 'revision', 'spec', 'paused', 'due')
local expected = ARGV[7]
local entry = ARGV[8]
if entry and tonumber(redis.call('ZSCORE', keys.RQ_SCHEDULER_ENTRIES, entry) or '') ~= tonumber(ARGV[9]) then
  return {'other', ''}
end
local same = v.revision == revision and v.spec == spec
if expected and not same then
  local found = v.revision or redis.call('ZSCORE', keys.SCHEDULES, name) and '?' or ''
  if found ~= expected then return {'other', v.spec or ''} end
end
if not v.revision and source == 'api' then demand_active() end -- before the entry is removed
if entry then redis.call('ZREM', keys.RQ_SCHEDULER_ENTRIES, entry) end
if expected and same then return {'unchanged', spec} end
local happened = 'unchanged'
if v.revision ~= revision or v.spec ~= spec then
  happened = v.revision and 'changed' or 'created'
  redis.call('HSET', key, 'spec', spec, 'revision', revision, 'due', due)
  if not v.revision then redis.call('HSET', key, 'created_at', NOW) end
else
  due = v.due or due
end
redis.call('HSET', key, 'source', source)
redis.call('ZADD', keys.SCHEDULES, 0, name)
if not v.paused then set_due(name, due) end
return {happened, v.spec or ''}
