-- @include _prelude _webhooks _relations
-- Removes a corrupt record from all lists. ARGV: now, id, then the queues.
-- Returns 1 when it was removed, 0 when the record is intact (it is left alone) or not listed at all.
write_even_when_full()
local id = ARGV[2]
local t = record(id, 'state', 'description', 'origin', 'token')
if t and t.state and RQ_STATUS[t.state] and t.description and t.origin then return 0 end
if not redis.call('ZSCORE', keys.TASKS, id) and not redis.call('HEXISTS', keys.FAILURE_GROUP_OF, id) then return 0 end
-- Its batch and its children were not notified of its end, and there will be no other.
local from = t and RQ_STATUS[t.state] and t.state or listed_under(id, {unpack(ARGV, 3)})
if not ENDED[from] then moved(id, from, 'failed') end
before_removal(id)
for at = 3, #ARGV do
  for _, state in ipairs({'pending', 'scheduled', 'retrying', 'running', 'blocked', 'completed', 'failed', 'cancelled',
    'expired'}) do
    leave(id, state, ARGV[at], t and t.token or '')
  end
end
remove(id, 'failed', t and t.origin or '', '')
return 1
