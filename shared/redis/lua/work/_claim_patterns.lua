-- Part of `claim.lua`: queues that a pattern names.

-- Fills the claim from queues that it does not name: few commands where these are empty, however many there are.
if patterns ~= '' and #tasks < want and room > 0 and patience > 0 then
  local of_key, lists = {}, {}
  for _, queue in ipairs(redis.call('ZRANGE', keys.QUEUES, 0, -1)) do
    local name = queue .. kind
    if not queue_of_lane[name] then
      lists[#lists + 1] = keys.rq_queue(name)
      of_key[lists[#lists]] = {name = name, quota = 0, most = math.huge}
    end
  end
  for _, key in ipairs(existing_keys(lists)) do
    local lane = of_key[key]
    local queue = queue_of(lane.name)
    spend(3)
    if matches_one(patterns, queue) and not (any_paused and redis.call('HEXISTS', keys.PAUSED, queue) == 1) then
      queue_of_lane[lane.name] = queue
      lanes[#lanes + 1] = lane
      take(lane, want)
    end
  end
end
