-- Included by the scripts that take records with named fields, as `shared/redis/rows.py` sends them.

-- Calls a function with each record from this argument on: how many fields they have, the names of these, then the values
-- of one record after another. Fields without a value are nil. The table is the same for all, which is faster.
local function for_each_row(at, take)
  local width, row = tonumber(ARGV[at]), {}
  for first = at + width + 1, #ARGV, width do
    for column = 1, width do
      local value = ARGV[first + column - 1]
      row[ARGV[at + column]] = value ~= '' and value or nil
    end
    take(row)
  end
end
