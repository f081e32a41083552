-- @include _prelude _webhooks _relations _limits _types _worker_queues
-- @step cancel submit
-- Stores one task under an idempotency key, in one step: after a crash between storing and answering, a repetition of the
-- request gets the same answer.
-- ARGV: now, digest of the key, fingerprint of the request, how long the answer is kept in milliseconds, then the
--   arguments of submit.lua for one task.
-- Returns {"stored" | "again" | "busy" | "other" (the key belongs to another request), id, state or answer of submit.lua};
--   "again" with the first answer. A refusal is not stored: the request may be fixed and repeated with its key.
local key = keys.idempotency(ARGV[2])
local v = hash(key, 'fingerprint', 'task', 'answer')
if v.fingerprint and v.fingerprint ~= ARGV[3] then return {'other', '', ''} end
if v.fingerprint and not v.answer then return {'busy', '', ''} end
-- Its own task under the key is the same command, sent again by the client after a lost answer.
if v.fingerprint and v.task then
  return {v.task == ARGV[6] and 'stored' or 'again', v.task, stored_answer(v.task, v.answer)}
end
-- One whose unique key another task holds here belongs here too.
local unique = ARGV[14] ~= '' and cjson.decode(ARGV[14]).unique
local stays = is_tied(relations_of(ARGV[13]))
if not stays and unique and is_draining() then stays = unique_holder(unique) end
if not stays then demand_active() end
local said = submit({ARGV[1], unpack(ARGV, 5)})[1]
if type(said) == 'string' or said[1] == 'existing' then
  redis.call('HSET', key, 'fingerprint', ARGV[3], 'task', ARGV[6], 'answer',
    cjson.encode(said))
  redis.call('PEXPIRE', key, ARGV[4])
end
return {'stored', ARGV[6], said}
