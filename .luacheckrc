-- luacheck's rules for the Lua scripts, linked as Redis runs them (`python -m tools.lint_lua`).
std = "lua51"
read_globals = {"redis", "cjson", "ARGV"}
max_line_length = false
ignore = {"431"} -- definitions that the linker puts behind a script's own names (`@later`) may have parameters of these names
