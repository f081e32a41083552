-- Included by the scripts that restore lost queue entries.

-- Adds entries of pending tasks in front of their lanes, in this order, and wakes workers.
local function restore_entries(queue, ids)
  local of_lane, lane_of_type = {}, {}
  local one_lane = redis.call('EXISTS', keys.CONCURRENT_TYPES) == 0
  for at = #ids, 1, -1 do
    local task_type = one_lane and '' or record_values(ids[at], 'description') or ''
    lane_of_type[task_type] = lane_of_type[task_type] or lane_for(queue, task_type)
    local lane = lane_of_type[task_type]
    of_lane[lane] = of_lane[lane] or {}
    table.insert(of_lane[lane], ids[at])
  end
  for lane, entries in pairs(of_lane) do
    redis.call('LPUSH', keys.rq_queue(lane), unpack(entries))
    list_lane(lane, entries[1])
    notify_workers(#entries, lane)
  end
end
