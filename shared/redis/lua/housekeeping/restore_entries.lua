-- @include _prelude
-- Gives tasks that no ticket leads to a new one, in front of all others and in the order in which they are named.
-- Whoever looked for them may be late: only what is pending still, for longer than the grace, gets one.
-- ARGV: now, queue, grace in microseconds, lock and token of the caller, ids (at most 1,000).
-- Returns how many tickets were put back.
local queue = ARGV[2]
if outlived(ARGV[4], ARGV[5]) then return OUTLIVED end
write_even_when_full()
local list, oldest = 'rq:queue:' .. queue, now - tonumber(ARGV[3])
local scores, tickets = redis.call('ZMSCORE', 'taskqueue:pending:' .. queue, unpack(ARGV, 6)), {}
for at = #scores, 1, -1 do
  if scores[at] and tonumber(scores[at]) <= oldest then tickets[#tickets + 1] = ARGV[at + 5] end
end
if #tickets == 0 then return 0 end
redis.call('LPUSH', list, unpack(tickets))
redis.call('SADD', 'rq:queues', list)
ring(#tickets, queue)
return #tickets
