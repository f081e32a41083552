-- @include _prelude _webhooks _relations
-- Enqueues a scheduled or retrying task at once, whatever its due time.
-- ARGV: now, id. Returns {state found ("" for unknown), 1 when it was moved}.
write_even_when_full()
local id = ARGV[2]
local t = record(id, 'state', 'origin')
local state = t and t.state or ''
if not (state == 'scheduled' or state == 'retrying') then return {state, 0} end
local queue = t.origin
if held_back(id, state, queue, NOW) then return {state, 1} end
transition(id, state, 'pending', queue)
moved(id, state, 'pending')
return {state, 1}
