-- @include _prelude
-- Adds an audit entry: also when Redis is full, and in a new stream where the existing one takes no more entries.
-- ARGV: now (not used), how many entries are kept, who, what, what it was done to, detail.
write_even_when_full()
redis.call('XADD', keys.AUDIT, 'MAXLEN', '~', ARGV[2], '*', 'who', ARGV[3], 'what', ARGV[4], 'about', ARGV[5],
  'detail', ARGV[6])
return 1
