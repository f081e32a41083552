-- @include _prelude _paging
-- Reads one page of the list of batches, newest first; changes nothing.
-- ARGV: now (not used), "" or the score and "" or the id of the last batch of the page before, how many to return.
-- Returns alternating ids and scores, with one more batch than requested when another page follows.
local first = ARGV[2] ~= '' and place_behind(keys.BATCHES, ARGV[2], ARGV[3]) or 0
return redis.call('ZREVRANGE', keys.BATCHES, first, first + ARGV[4], 'WITHSCORES')
