--- Multiverso for LuaJIT: tables of parameters that all workers of an MPI job add to and get from.
--
--   local multiverso = require 'multiverso'
--   multiverso.init()
--   local weights = multiverso.ArrayTableHandler:new(1000)
--   weights:add(delta)
--   local parameters = weights:get()
--   multiverso.shutdown()
--
-- `luajit train.lua` runs one worker, `mpirun -np 4 luajit train.lua` four. See docs/lua.md.

local ffi = require 'ffi'
local capi = require 'multiverso.capi'
local elements = require 'multiverso.elements'
local session = require 'multiverso.session'
local tables = require 'multiverso.tables'
local lib, call = capi.lib, capi.call

local multiverso = {
  _VERSION = ffi.string(lib.MV_VersionString()),
  ArrayTableHandler = tables.ArrayTableHandler,
  HashTableHandler = tables.HashTableHandler,
  MatrixTableHandler = tables.MatrixTableHandler,
}

--- Opens the session. Collective: returns when all ranks have called it. Under mpirun or srun it
-- loads the job's MPI and initializes it if necessary.
-- @param sync true for lock-step; false (default) lets each worker run at its own speed
-- @param options { staleness = rounds, role = 'all' | 'worker' | 'server', timeout = seconds,
--   start_timeout = seconds, mpi = path of the libmpi to load }
function multiverso.init(sync, options)
  session.open(sync, options)
end

--- Waits for all ranks: every get after it includes every add before it.
function multiverso.barrier()
  call(lib.MV_SessionBarrier, session.current().handle)
end

--- Closes the session when all ranks have called it; a no-op without a session.
function multiverso.shutdown()
  session.close()
end

--- Takes this worker out of the later rounds of sync mode; the other workers continue without it.
function multiverso.finish()
  call(lib.MV_SessionFinish, session.current().handle)
end

--- Sums an ffi array or a tensor over the workers, in place, and returns it. Collective.
function multiverso.aggregate(array)
  local open = session.current()
  local memory, dtype, count = elements.in_place(array)
  call(lib.MV_SessionAggregate, open.handle, capi.MV_OP_SUM, dtype.code, memory, count)
  return array
end

--- Returns a number from the description of the open session.
local function describe(name)
  return tonumber(session.current().description[name])
end

-- Ids are dense and in rank order, from 0; a rank whose role has no such id gets -1. This module
-- calls none of these functions, because programs overwrite them with their results, as in
-- multiverso.worker_id = multiverso.worker_id().
for _, name in ipairs { 'rank', 'size', 'num_workers', 'num_servers', 'worker_id', 'server_id' } do
  multiverso[name] = function() return describe(name) end
end

--- Returns whether this worker is the master, whose initial values are used.
function multiverso.is_master_worker()
  return describe('worker_id') == 0
end

return multiverso
