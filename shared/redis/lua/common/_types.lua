-- Included by the scripts that check which worker can run a task. A worker names its set of task types
-- (`keys.TYPES_OF`); a set is a hash of type names to versions, where a version is the digest of the published
-- type. A task that the claiming worker cannot run is in a wait queue of one of three kinds until a worker can run it:
-- `worker:TYPE` while no worker has the type, `refused:TYPE#VERSIONS` if these versions have refused its data, and
-- `pinned:TYPE#VERSION` if its steps pin it to one; other versions run it when no worker has that one.
local RECENT = 60000000 -- a set counts as live as long as the record of a worker

local function worker_queue(task_type, refused, pinned)
  if pinned then return 'pinned:' .. task_type .. '#' .. pinned end
  return refused and 'refused:' .. task_type .. '#' .. refused or 'worker:' .. task_type
end

local known_versions = {}
local function version_of(set, task_type)
  local known = known_versions[set] or {}
  known_versions[set] = known
  if known[task_type] == nil then known[task_type] = redis.call('HGET', keys.type_set(set), task_type) end
  return known[task_type]
end

-- Returns the type of such a wait queue, and the versions that have refused its tasks or the one to which they are pinned;
-- nil for a limit's.
local function worker_queue_parts(group)
  local kind, task_type, version = string.match(group, '^(%l+):([^#]*)#?(.*)$')
  if kind == 'worker' then return task_type end
  if kind == 'refused' then return task_type, version end
  if kind == 'pinned' then return task_type, nil, version end
end

-- Loads the versions in many sets for many wait queues, with one command for each set.
local function learn_versions(sets, groups)
  local types = {}
  for _, group in ipairs(groups) do types[#types + 1] = (worker_queue_parts(group)) end
  for _, set in ipairs(#types > 0 and sets or {}) do
    local known = known_versions[set] or {}
    known_versions[set] = known
    for at, version in ipairs(redis.call('HMGET', keys.type_set(set), unpack(types))) do known[types[at]] = version end
  end
end

-- Returns whether a set is published: one that Redis lost is ignored until its workers publish it again.
local function is_published(set) return version_of(set, '@first') ~= false end

-- Returns the sets of the live workers; with "" when there are workers of an earlier version.
local function live_sets()
  local names = redis.call('ZRANGEBYSCORE', keys.WORKERS, num(now - RECENT), '+inf', 'LIMIT', 0, 2000)
  local sets, seen = {}, {}
  for _, set in ipairs(#names > 0 and redis.call('HMGET', keys.TYPES_OF, unpack(names)) or {}) do
    -- A worker that drains, or has not begun, has "-".
    set = set or ''
    if set ~= '-' and not seen[set] then
      seen[set] = true
      sets[#sets + 1] = set
    end
  end
  return sets
end

-- Returns the same with those that were live a minute ago: a worker that restarts will be back. Time in which no heartbeat
-- could reach Redis, by the last check of ended leases (`reap.lua`), does not count.
local function recent_sets()
  local v = hash(keys.REAPER, 'beat', 'credit', 'until')
  local beat, credit, ends = number_of(v.beat) or now, number_of(v.credit) or 0, number_of(v['until']) or 0
  local outage = math.max(0, now - beat) + (ends > now and credit or 0)
  local sets = redis.call('ZRANGEBYSCORE', keys.TYPE_SETS, num(now - RECENT - outage), '+inf')
  for _, set in ipairs(live_sets()) do
    if set == '' then sets[#sets + 1] = set end
  end
  return sets
end

-- Returns whether this version of a type may run tasks that versions have refused, or that are pinned to one. For a pinned
-- task of another version it reads the sets of all workers.
local function may_run(task_type, version, refused, pinned)
  if refused and string.find(refused, version, 1, true) then return false end
  for _, set in ipairs(pinned and version ~= pinned and recent_sets() or {}) do
    if set ~= '' and version_of(set, task_type) == pinned then return false end
  end
  return true
end

-- Returns whether a worker with this set can run the tasks of a wait queue; "" is an earlier version, without a set.
local function set_serves(set, group)
  local task_type, refused, pinned = worker_queue_parts(group)
  if not task_type or set == '' then return true end
  local version = version_of(set, task_type)
  return version and may_run(task_type, version, refused, pinned)
end

local function is_served(group, sets)
  for _, set in ipairs(sets) do
    if set_serves(set, group) then return true end
  end
  return false
end
