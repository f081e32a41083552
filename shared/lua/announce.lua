-- A worker's sign of life, to us and to RQ's tools. A full Redis takes it too: it must not look like one whose workers
-- have died.
-- ARGV: now, worker, for how many seconds RQ's tools show it, what it is doing (JSON), the task that it runs ("" for none), its
--   queues (a JSON array), its fields for RQ (a JSON array of names and values in turns), for how many seconds its record is kept.
local worker, life = ARGV[2], ARGV[3]
local rq = 'rq:worker:' .. worker
write_even_when_full()
redis.call('ZADD', 'taskqueue:workers', NOW, worker)
redis.call('ZREM', 'taskqueue:workers:lost', worker)
redis.call('SET', 'taskqueue:worker:' .. worker, ARGV[4], 'EX', ARGV[8])
redis.call('HSET', rq, 'last_heartbeat', iso(now), unpack(cjson.decode(ARGV[7])))
-- RQ's tools look up an empty one.
if ARGV[5] ~= '' then redis.call('HSET', rq, 'current_job', ARGV[5]) else redis.call('HDEL', rq, 'current_job') end
redis.call('EXPIRE', rq, life)
redis.call('SADD', 'rq:workers', rq)
for _, queue in ipairs(cjson.decode(ARGV[6])) do redis.call('SADD', 'rq:workers:' .. queue, rq) end
return 1
