-- @include _prelude _webhooks _relations
-- Requeues dead letters with all their retries; their attempts stay.
-- ARGV: now, the requesting span ("" for none), a nonce (new for each command), "" or their new score, then the ids.
-- Returns per task {state found ("" for unknown), 1 when it was requeued, its batch if that is stopped}; the same when
--   repeated.
local answer = {}
write_even_when_full()
for at = 5, #ARGV do answer[#answer + 1] = requeue_one(ARGV[at], nil, ARGV[2], ARGV[3], ARGV[4]) end
return answer
