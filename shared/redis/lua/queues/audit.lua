-- @include _prelude
-- Writes down who did what: also when Redis is full, and in a record that begins anew where the one there takes no more.
-- ARGV: now (not used), how many entries are kept, who, what, what it was done to, detail.
write_even_when_full()
redis.call('XADD', 'taskqueue:audit', 'MAXLEN', '~', ARGV[2], '*', 'who', ARGV[3], 'what', ARGV[4], 'about', ARGV[5],
  'detail', ARGV[6])
return 1
