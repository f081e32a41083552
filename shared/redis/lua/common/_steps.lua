-- What a running task has stored, its field `steps`: how many steps, how many bytes of them, and how often its attempts have
-- read or written them.
local function steps_of(text)
  local steps, bytes, writes = string.match(text or '', '^(%d+) (%d+) ?(%d*)$')
  return tonumber(steps) or 0, tonumber(bytes) or 0, tonumber(writes) or 0
end

local function steps_as(steps, bytes, writes) return num(steps) .. ' ' .. num(bytes) .. ' ' .. num(writes) end

-- Returns whether Redis has lost what an attempt that still holds its lease was told to be stored: kill -9 before the file
-- had it, or a failover to a replica that was behind. What such an attempt stored now would come after a hole.
-- An attempt brings how many reads and writes it knows, and the name of the last step that was confirmed to it ("": none).
local function is_behind(t, known, last)
  local _, _, writes = steps_of(t.steps)
  return writes < (tonumber(known) or 0) or ((last or '') ~= '' and not t['step:' .. last])
end
