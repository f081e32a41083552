-- @include _prelude _task_fields
-- @step submit_one
-- Does the same as `submit_once.lua`, for one task without relations, by the shorter way of `submit_one.lua`.
-- ARGV: now, digest of the key, fingerprint of the request, how long the answer is kept in milliseconds, then the
--   arguments of submit_one.lua.
-- Returns the answer of `submit_once.lua`; nothing where that script has to store it.
local key = keys.idempotency(ARGV[2])
local v = hash(key, 'fingerprint', 'task', 'answer')
if v.fingerprint and v.fingerprint ~= ARGV[3] then return {'other', '', ''} end
if v.fingerprint and not v.answer then return {'busy', '', ''} end
if v.fingerprint and v.task then
  return {v.task == ARGV[6] and 'stored' or 'again', v.task, stored_answer(v.task, v.answer)}
end
demand_active()
local said = submit_one({ARGV[1], unpack(ARGV, 5)})
if not said then return false end
if type(said) == 'string' then
  redis.call('HSET', key, 'fingerprint', ARGV[3], 'task', ARGV[6], 'answer', cjson.encode(said))
  redis.call('PEXPIRE', key, ARGV[4])
end
return {'stored', ARGV[6], said}
