-- RQ programs may enqueue into a queue of ours. Such a foreign job has a record without a state of ours.
local function is_foreign(id)
  local size = redis.pcall('HLEN', keys.rq_job(id))
  return type(size) == 'number' and size > 0 and not RQ_STATUS[redis.call('HGET', keys.rq_job(id), 'state') or '']
end

-- Returns whether a parked job is still to be run by RQ.
local function waits_for_rq(id)
  local status = is_foreign(id) and (redis.call('HGET', keys.rq_job(id), 'status') or 'queued')
  return status == 'queued' or status == 'created'
end

-- Parks the foreign jobs among queue entries that lead to no pending task, before these are removed. Their records
-- stay unchanged. Entries of our own are hints; those without a record RQ drops too. Returns how many commands that took.
local function park_foreign(queue, ids)
  if #ids == 0 then return 0 end
  local key, parked, looked = keys.foreign(queue), {}, 0
  local listed, last = redis.call('ZMSCORE', keys.TASKS, unpack(ids)), redis.call('ZRANGE', key, -1, -1, 'WITHSCORES')[2]
  local first = math.max(now, (number_of(last) or 0) + 1)
  for at, id in ipairs(ids) do
    if not listed[at] then
      looked = looked + 1
      if is_foreign(id) then
        parked[#parked + 1] = num(first + #parked / 2)
        parked[#parked + 1] = id
      end
    end
  end
  if #parked > 0 then redis.call('ZADD', key, 'NX', unpack(parked)) end
  return 3 + 2 * looked
end
