-- @include _prelude
-- Shows locks; changes nothing. ARGV: now, then the names of locks; without any, all that ever existed.
-- Returns per lock {name, token ("" when free), owner, fence, acquired at, microseconds left, thread}.
local names = {}
for at = 2, #ARGV do names[#names + 1] = ARGV[at] end
if #names == 0 then names = redis.call('HKEYS', keys.LOCK_FENCES) end
table.sort(names)
local answer = {}
for _, name in ipairs(names) do
  local v = hash(keys.lock(name), 'token', 'owner', 'fence', 'acquired_at', 'until', 'thread')
  local left = (number_of(v['until']) or 0) - now
  if v.token and left > 0 then
    answer[#answer + 1] = {name, v.token, v.owner or '', v.fence or '', v.acquired_at or '', num(left), v.thread or ''}
  else
    answer[#answer + 1] = {name, '', '', redis.call('HGET', keys.LOCK_FENCES, name) or '', '', '0', ''}
  end
end
return answer
