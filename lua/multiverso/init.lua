--- Multiverso for LuaJIT: parameters in tables that every worker of an MPI job can add to and get from.
--
--   local multiverso = require 'multiverso'
--   multiverso.init()
--   local weights = multiverso.ArrayTableHandler:new(1000)
--   weights:add(delta)
--   local parameters = weights:get()
--   multiverso.shutdown()
--
-- `luajit train.lua` is one worker, `mpirun -np 4 luajit train.lua` four. docs/lua.md has the rest.

local ffi = require 'ffi'
local capi = require 'multiverso.capi'
local elements = require 'multiverso.elements'
local session = require 'multiverso.session'
local tables = require 'multiverso.tables'
local lib, call = capi.lib, capi.call

local multiverso = {
  _VERSION = ffi.string(lib.MV_VersionString()),
  ArrayTableHandler = tables.ArrayTableHandler,
  MatrixTableHandler = tables.MatrixTableHandler,
}

--- Joins the parameter server. Collective: returns when all ranks have called it. Under mpirun or
-- srun it opens the job's MPI and initialises it where that has not been done.
-- @param sync true for lock-step rounds; false, the default: each worker at its own speed
-- @param options { staleness = rounds, role = 'all' | 'worker' | 'server', timeout = seconds,
--   mpi = path of the libmpi to open }
function multiverso.init(sync, options)
  session.open(sync, options)
end

--- Waits for all ranks: every add called before it is in every get after it.
function multiverso.barrier()
  call(lib.MV_SessionBarrier, session.current().handle)
end

--- Waits for all ranks to come here, and ends the session. Nothing happens without one.
function multiverso.shutdown()
  session.close()
end

--- This worker joins no further rounds of sync mode; those of the others go on without it.
function multiverso.finish()
  call(lib.MV_SessionFinish, session.current().handle)
end

--- Sums an ffi array or a tensor over the workers, in place, and returns it. Collective.
function multiverso.aggregate(array)
  local open = session.current()
  local memory, dtype, count = elements.in_place(array)
  call(lib.MV_SessionAggregate, open.handle, dtype.code, memory, count)
  return array
end

-- Who takes part. Ids are dense, in rank order, from 0; -1 on a rank whose role has none.
for _, name in ipairs { 'rank', 'size', 'num_workers', 'num_servers', 'worker_id', 'server_id' } do
  multiverso[name] = function() return tonumber(session.current().description[name]) end
end

--- Whether this is the worker whose initial values count.
function multiverso.is_master_worker()
  return multiverso.worker_id() == 0
end

return multiverso
