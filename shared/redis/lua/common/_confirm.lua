-- Wraps a script whose effect must be in the append-only file, where it survives kill -9, before its caller continues.
-- Returns the script's reply when no fsync is under way: Redis then writes its file before it sends the reply.
-- Else {"POSTPONED", when this server was started or has saved a snapshot, the script's reply}.
local reply = step(ARGV)
local info = redis.call('INFO', 'persistence')
-- The plain search comes first, because a pattern takes several times as long; without a file neither finds anything.
if type(reply) == 'table' and reply.err or string.find(info, '\naof_pending_bio_fsync:0', 1, true) or
  not string.find(info, '\naof_pending_bio_fsync:[1-9]') then return reply end
return {'POSTPONED', string.match(info, '\nrdb_last_save_time:(%d+)'), reply or false}
