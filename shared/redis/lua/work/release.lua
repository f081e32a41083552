-- @include _prelude _webhooks _relations _limits
-- Returns claimed tasks that never began: they wait again, in front, and no attempt is spent.
-- ARGV: now, then three per task in the order they were claimed: id, token, enqueued at (microseconds).
-- Returns how many were returned; one whose lease was lost is left alone.
local given = 0
write_even_when_full()

local function give_back(id, token, enqueued)
  local t = record(id, 'token', 'state', 'origin', 'expires_at', 'cancel', 'attempt', 'relations')
  if not t or t.token ~= token or t.state ~= 'running' then return end
  local queue = t.origin
  leave(id, 'running', queue, token)
  bump(id, 'attempt', number_of(t.attempt) or 1, -1)
  given = given + 1
  if limited then
    give_tokens_back(id)
    free_slots(id)
  end
  local to = t.cancel and 'cancelled' or 'pending'
  if to == 'cancelled' then
    transition(id, 'running', to, queue, nil, 'token', '')
    count('cancelled', 1)
  else
    hold_unique_again(id, {start = true})
    transition(id, 'running', to, queue, enqueued ~= '' and enqueued or NOW, 'token', '')
    watch_deadline(id, t.expires_at)
  end
  if t.relations then moved(id, 'running', to) end
end

for at = #ARGV - 2, 2, -3 do give_back(ARGV[at], ARGV[at + 1], ARGV[at + 2]) end
return given
