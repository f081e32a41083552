-- Without the feature `webhooks`, whose file of this name replaces this one, no delivery is created when a task ends. The end is
-- marked as delivered all the same, or the consistency check would create the delivery again in each pass.
local function create_delivery(id)
  redis.call('HSET', keys.rq_job(id), 'delivered_end', redis.call('HGET', keys.rq_job(id), 'ended_at') or '')
end
