-- Part of `submit.lua`: the entries and indexes of new tasks, written together at the end.

-- Collects additions of many tasks to one index, written together at the end.
local function list_later(key, score, id)
  local list = listed[key]
  if not list then
    list = {}
    listed[key] = list
  end
  list[#list + 1] = score
  list[#list + 1] = id
end

local lanes = {}
local function lane_of(queue, task_type)
  local place = queue .. '|' .. task_type
  lanes[place] = lanes[place] or lane_for(queue, task_type)
  return lanes[place]
end

local function enqueue_later(queue, lane, id, score)
  local ids = by_lane[lane]
  if not ids then
    ids = {}
    by_lane[lane] = ids
  end
  ids[#ids + 1] = id
  list_later(keys.pending(queue), score, id)
end

local function write_list(key, list)
  for at = 1, #list, 1000 do redis.call('ZADD', key, unpack(list, at, math.min(at + 999, #list))) end
end

-- A corrupt key does not stop the step; the error is returned at the end: stored tasks are counted in their batch and
-- enqueued, and the repeated step (see `_quarantine.lua`) adds the rest.
local failure
local function attempt(step, ...)
  local whole, problem = pcall(step, ...)
  if not whole then failure = failure or problem end
end

-- Enqueues the tasks that may run now, and adds all of them to their indexes.
local function enqueue_all()
  for lane, ids in pairs(by_lane) do
    list_lane(lane, ids[1])
    for at = 1, #ids, 1000 do
      redis.call('RPUSH', keys.rq_queue(lane), unpack(ids, at, math.min(at + 999, #ids)))
    end
    notify_workers(#ids, lane)
  end
  for key, list in pairs(listed) do attempt(write_list, key, list) end
  by_lane, listed = {}, {}
end

local function index(id, task_type, tags, score)
  list_later(keys.TASKS, score, id)
  list_later(keys.tasks_of_type(task_type), score, id)
  if tags ~= '' then
    for _, tag in ipairs(cjson.decode(tags)) do list_later(keys.tasks_with_tag(tag), score, id) end
  end
end
