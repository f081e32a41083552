-- @include _prelude _webhooks _relations
-- Sends dead letters back to their queues with all their retries; their history stays.
-- ARGV: now, the span that does this ("" for none), a nonce (new for each command), then the ids.
-- Returns per task {state found ("" for unknown), 1 when it was requeued, its batch if it was not because that was
--   stopped}; the same when it is sent again.
local answer = {}
write_even_when_full()
for at = 4, #ARGV do answer[#answer + 1] = requeue_one(ARGV[at], nil, ARGV[2], ARGV[3]) end
return answer
