-- @include _prelude _webhooks _relations
-- Repeats an ended delivery: a dead letter is requeued, any other is copied.
-- ARGV: now, id of the delivery.
-- Returns {state found ("" when it is not a delivery), id of the new delivery ("" for none)}.
write_even_when_full()
local id = ARGV[2]
local t = record(id, 'state', 'delivery_of', 'origin', 'data', 'retry', 'meta', 'receiver')
if not (t and t.state and t.delivery_of and t.origin and t.data) then return {'', ''} end
if t.state == 'failed' then return {'failed', requeue_one(id)[2] == 1 and id or ''} end
if not ENDED[t.state] or redis.call('HEXISTS', keys.rq_job(t.delivery_of), 'state') == 0 then return {t.state, ''} end
return {t.state, post(t.delivery_of, t.origin, function() return t.data end, t.retry, t.meta, t.receiver)}
