-- @include _prelude
-- Does what Redis refuses when it takes no submissions: a write that needs memory, as the first of its script.
-- Returns nothing of interest.
redis.call('SET', keys.SUBMISSION_CHECK, NOW, 'EX', 60)
return 1
