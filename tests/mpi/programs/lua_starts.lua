-- Each rank starts this script as another program, with arguments, before and after its session begins.
local multiverso = require 'multiverso'

local function start(name)
  assert(os.execute(('luajit %s %s'):format(arg[0], name)) ~= nil)
end

if not arg[1] then start('before') end
multiverso.init(false, { timeout = 60 })
if not arg[1] then start('after') end
multiverso.barrier()
print(('%s: %d workers'):format(arg[1] or 'rank', multiverso.num_workers()))
multiverso.shutdown()
