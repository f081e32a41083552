-- @include _prelude
-- Does what Redis refuses when it takes no submissions: a write that needs memory, as the first of its script.
-- Returns nothing of interest.
redis.call('SET', 'taskqueue:submission-check', NOW, 'EX', 60)
return 1
