-- Sends a dead letter back with other data: the new data and the requeue are one step.
-- ARGV: now, id, data (RQ's call in JSON), the span that does this ("" for none).
-- Returns {state found ("" for unknown), 1 when it was done}.
-- Its attempts stay, and so does how often the data was changed.
return requeue_one(ARGV[2], ARGV[3], ARGV[4])
