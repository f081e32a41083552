-- Included by the scripts that let a task wait for a worker that can run it (see `_types.lua`).
local called = {}

-- Wakes idle workers that can run the tasks of a wait queue, once per step; busy ones find them with their next claim.
-- Returns how many commands that took at most.
local function wake_for_type(group)
  if called[group] then return 0 end
  called[group] = true
  local idle = redis.call('ZRANGE', keys.PARKED_CLAIMS, 0, 31)
  for _, claimant in ipairs(idle) do
    local worker = queue_of(claimant) -- a claimant has the suffix of its lane
    local set = redis.call('HGET', keys.TYPES_OF, worker)
    if set and set ~= '' and set_serves(set, group) then
      local control = keys.control(worker)
      redis.call('RPUSH', control, 'look')
      redis.call('EXPIRE', control, 3600)
    end
  end
  return 1 + 4 * #idle
end

local function wait_for_worker(id, lane, group, tenant, enqueued, score)
  limited = true
  enter_wait_queue(id, lane, group, tenant, enqueued, score)
  return wake_for_type(group)
end
