-- @include _prelude _webhooks _relations
-- Deletes ended tasks, by id. ARGV: now, the state they must be in, then the ids.
-- Returns per task {state found ("" for unknown), 1 when it was removed}. A record that is not a hash has no state and is
-- removed when the index of the state holds it.
write_even_when_full()
local wanted = ARGV[2]
local answer = {}
for at = 3, #ARGV do
  local id = ARGV[at]
  local t = record(id, 'state', 'origin')
  local state = t and t.state or ''
  local listed = redis.call('ZSCORE', keys.ended(wanted), id)
  local gone = listed and (state == wanted or not t or not t.state)
  if gone then
    before_removal(id)
    remove(id, wanted, t and t.origin or '', '')
  end
  answer[#answer + 1] = {gone and wanted or state, gone and 1 or 0}
end
return answer
