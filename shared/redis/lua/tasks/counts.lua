-- @include _prelude
-- Counts the entries of indexes, all at one instant; changes nothing. ARGV: now (not used), then the indexes.
-- Returns how many entries each has. A transaction would not do: a full Redis refuses to queue its commands.
local numbers = {}
for at = 2, #ARGV do numbers[#numbers + 1] = redis.call('ZCARD', ARGV[at]) end
return numbers
