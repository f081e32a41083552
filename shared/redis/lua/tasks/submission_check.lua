-- @include _prelude
-- Fails when Redis takes no submissions: writes data that needs memory, first in its script.
-- Returns nothing of interest.
redis.call('SET', keys.SUBMISSION_CHECK, NOW, 'EX', 60)
return 1
