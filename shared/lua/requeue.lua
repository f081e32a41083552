-- Sends dead letters back to their queues with all their retries; their history stays.
-- ARGV: now, the span that does this ("" for none), then the ids.
-- Returns per task {state found ("" for unknown), 1 when it was requeued}.
local answer = {}
for at = 3, #ARGV do answer[#answer + 1] = requeue_one(ARGV[at], nil, ARGV[2]) end
return answer
