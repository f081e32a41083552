-- Part of `claim.lua`: the limits whose wait queues may have a task for this worker.

-- Where limits have wait queues or tenants take turns, a lane is more than its list: of the next tasks of the list and of
-- each wait queue that may move goes first the one whose tenant waits longest, and of one tenant the oldest. So a limit
-- delays only its own tasks, and a tenant no other, wherever the tasks of both wait. The list's tasks are one tenant.
-- Wait queues that are all in queues that are paused or not this worker's, or that it cannot serve, are skipped, a
-- millisecond's worth of them.
local due = {most = 32, elsewhere = {}}

local function waited_for_here(name)
  local here = {}
  for at, lane in ipairs(lanes) do here[at] = tenants_key(lane.name, name) end
  return #here > 0 and redis.call('EXISTS', unpack(here)) > 0
end

do
  local found = limited and redis.call('ZRANGEBYSCORE', keys.LIMITS_DUE, '-inf', NOW, 'LIMIT', 0,
    math.max(due.most, math.min(500, math.floor(16000 / math.max(1, #lanes))))) or {}
  spend(#found)
  for _, name in ipairs(found) do
    if #due == due.most or patience <= 0 then break end
    if string.find(name, '^pinned:') then spend(20) end
    local ours = (not own_set or set_serves(own_set, name)) and waited_for_here(name)
    table.insert(ours and due or due.elsewhere, name)
  end
end
