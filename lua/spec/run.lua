-- Runs busted with LuaJIT instead of the system's Lua: luajit lua/spec/run.lua lua/spec
require 'busted.runner'({ standalone = false })
