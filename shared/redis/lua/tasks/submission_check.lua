-- @include _prelude
-- Does what Redis refuses a submission for when it takes none: a write that needs memory, as the first of its script.
-- Returns nothing of interest.
redis.call('SET', 'taskqueue:submission-check', NOW, 'EX', 60)
return 1
