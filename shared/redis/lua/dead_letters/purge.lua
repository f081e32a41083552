-- @include _prelude _webhooks _relations _undo
-- Deletes ended tasks, by id. ARGV: now, the state they must be in, how long they can be restored (milliseconds), then
-- the ids.
-- Returns per task {state found ("" for unknown), 1 when it was removed}.
write_even_when_full()
local answer = {}
for at = 4, #ARGV do answer[#answer + 1] = delete_one(ARGV[at], ARGV[2], tonumber(ARGV[3])) end
return answer
