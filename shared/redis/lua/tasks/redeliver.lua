-- @include _prelude _webhooks _relations
-- Repeats an ended delivery: a dead letter is requeued, any other is copied.
-- ARGV: now, id of the delivery.
-- Returns {state found ("" when it is not a delivery), id of the new delivery ("" for none)}.
write_even_when_full()
local id = ARGV[2]
local v = fields(id, 'state', 'delivery_of', 'origin', 'data', 'retry', 'meta', 'receiver')
if not (v and v[1] and v[2] and v[3] and v[4]) then return {'', ''} end
if v[1] == 'failed' then return {'failed', requeue_one(id)[2] == 1 and id or ''} end
if not ENDED[v[1]] or redis.call('HEXISTS', keys.rq_job(v[2]), 'state') == 0 then return {v[1], ''} end
return {v[1], post(v[2], v[3], function() return v[4] end, v[5], v[6], v[7])}
