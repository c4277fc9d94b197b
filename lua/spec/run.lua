-- Runs busted with LuaJIT, whatever the system's `busted` runs with: luajit lua/spec/run.lua lua/spec
require 'busted.runner'({ standalone = false })
