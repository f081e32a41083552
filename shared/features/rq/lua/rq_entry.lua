-- @include _prelude _enqueue_job
-- Enqueues the job of a due entry of rq-scheduler and moves the entry to its next time, in one step. rq-scheduler does it
-- in two: killed between them, it enqueues the job twice.
-- ARGV: now, lock and token of the caller, id of the job, its time as read (seconds), next time ("" for none), meta with
--   the repetitions that are left, serialized ("" to leave it).
-- Returns 1, or 0 if it was enqueued, moved or removed meanwhile. An entry without a job is removed, as rq-scheduler does.
if lock_ended(ARGV[2], ARGV[3]) then return LOCK_ENDED end
local id, entries = ARGV[4], keys.RQ_SCHEDULER_ENTRIES
if tonumber(redis.call('ZSCORE', entries, id) or '') ~= tonumber(ARGV[5]) then return 0 end
local job = record(id, 'origin')
if not job or not job.origin then redis.call('ZREM', entries, id) return 0 end
if ARGV[6] == '' then redis.call('ZREM', entries, id) else redis.call('ZADD', entries, ARGV[6], id) end
if ARGV[7] ~= '' then redis.call('HSET', keys.rq_job(id), 'meta', ARGV[7]) end
redis.call('SADD', keys.RQ_QUEUES, keys.rq_queue(job.origin))
enqueue_job(id, job.origin)
return 1
