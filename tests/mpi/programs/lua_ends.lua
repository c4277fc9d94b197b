-- Rank 1 ends, or is interrupted, while the other ranks wait for it in a barrier: lua_ends.lua HOW.
-- Each rank that leaves the barrier writes its outcome to the report of tests/launch.py.
local multiverso = require 'multiverso'
local how = arg[1]
multiverso.init(false, { timeout = 60 })
if multiverso.rank() == 1 then
  if how == 'error' then error('nothing left') end
  if how == 'exit' then os.exit(3) end
  if how == 'return' then return end
end
-- The test interrupts rank 1 in the second barrier, which rank 0 enters when rank 1 has reported.
if how == 'interrupt' then
  multiverso.barrier()
  local folder = os.getenv('MULTIVERSO_TEST_JOB')
  assert(io.open(('%s/waiting-%d'):format(folder, multiverso.rank()), 'w')):close()
  if multiverso.rank() == 0 then
    while not io.open(folder .. '/report-1.json') do os.execute('sleep 0.05') end
  end
end
local ok, message = pcall(multiverso.barrier)
local path = ('%s/report-%d.json'):format(os.getenv('MULTIVERSO_TEST_JOB'), multiverso.rank())
local file = assert(io.open(path .. '.new', 'w'))
file:write(('{"ok": %s, "message": %q}'):format(tostring(ok), tostring(message):gsub('\n', ' ')))
file:close()
assert(os.rename(path .. '.new', path))
