-- @include _prelude
-- Reserves indexes for more tasks of a batch.
-- ARGV: now, id, how many, first index ("" for the one after all others), digest of the request's idempotency key ("" for
--   none). Returns the first index, nil for an unknown batch. A repeated request gets the same indexes.
local id, many = ARGV[2], tonumber(ARGV[3])
local key, request = keys.batch(id), ARGV[5] ~= '' and keys.idempotency(ARGV[5])
local b = redis.call('HMGET', key, 'total', 'next')
if not b[1] then return nil end
local behind = number_of(b[2]) or 0
local first = tonumber(ARGV[4]) or (request and number_of(redis.call('HGET', request, 'first'))) or behind
if first + many > behind then redis.call('HSET', key, 'next', first + many) end
if request then redis.call('HSET', request, 'first', first) end
return first
