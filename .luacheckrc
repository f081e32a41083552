-- luacheck's rules for the Lua scripts, linked as Redis runs them (`python -m tools.lint_lua`).
std = "lua51"
read_globals = {"redis", "cjson", "ARGV"}
max_line_length = false
