--- The session: opens it with the options of `multiverso.init`, closes it, and holds the open one.

local bit = require 'bit'
local ffi = require 'ffi'
local capi = require 'multiverso.capi'
local lib, call = capi.lib, capi.call

local session = {}

local ROLES = { all = capi.MV_ROLE_ALL, worker = capi.MV_ROLE_WORKER, server = capi.MV_ROLE_SERVER }
local OPTION_NAMES = {
  staleness = true, role = true, timeout = true, start_timeout = true, mpi = true,
}

local SIZEOF_DESCRIPTION = ffi.sizeof('MV_SessionDescription')

local current -- { handle, description, key, path } while a session is open; there is at most one

--- Returns the launchers whose variables are about this process, not about a rank that has started
-- it; raises an error if `opens` is 1 and another process is the same rank.
local function own_launchers(opens)
  local launchers = ffi.new('int32_t[1]')
  call(lib.MV_ClaimRank, opens, launchers)
  return launchers[0]
end

-- The first process that loads this file is the rank. Those that it starts are not.
own_launchers(0)

--- Returns whether a launcher started this process as part of a job.
local function in_job()
  if os.getenv('OMPI_COMM_WORLD_SIZE') then return true end
  if os.getenv('SLURM_STEP_ID') and (tonumber(os.getenv('SLURM_STEP_NUM_TASKS')) or 0) > 1 then
    return true
  end
  for _, name in ipairs { 'PMI_SIZE', 'PMI_RANK', 'PMIX_RANK', 'MPI_LOCALNRANKS' } do
    if os.getenv(name) then return true end
  end
  return false
end

local function check_type(argument, value, expected)
  if type(value) ~= expected then
    capi.reject('MV_ERR_TYPE', argument, 'a ' .. expected, type(value))
  end
end

--- Returns a limit in seconds, or math.huge for none, as the library takes it.
local function milliseconds(argument, limit)
  check_type(argument, limit, 'number')
  if limit == math.huge then return capi.MV_NO_LIMIT end
  if not (limit > 0 and limit < 2 ^ 31) then
    capi.reject('MV_ERR_VALUE', argument, 'seconds > 0', limit)
  end
  return math.ceil(limit * 1000)
end

--- Returns the C options, the string that they point to, and a key that is equal for equal options.
local function parse_options(sync, options)
  sync, options = sync or false, options or {}
  check_type('sync', sync, 'boolean')
  check_type('options', options, 'table')
  for name in pairs(options) do
    if not OPTION_NAMES[name] then
      capi.reject('MV_ERR_TYPE', 'options', 'staleness, role, timeout, start_timeout or mpi', tostring(name))
    end
  end
  local staleness, role = options.staleness, options.role or 'all'
  local timeout = options.timeout or 1800
  local start_timeout = options.start_timeout or options.timeout or 120
  if staleness ~= nil then check_type('staleness', staleness, 'number') end
  if staleness and (staleness < 0 or staleness % 1 ~= 0) then
    capi.reject('MV_ERR_VALUE', 'staleness', 'an integer >= 0', staleness)
  end
  if not ROLES[role] then
    capi.reject('MV_ERR_VALUE', 'role', 'all, worker or server', tostring(role))
  end
  if sync and staleness and staleness > 0 then
    capi.reject('MV_ERR_VALUE', 'staleness', 'nil or 0 with sync', staleness)
  end
  local c_options = ffi.new('MV_SessionOptions')
  call(lib.MV_SessionOptionsInit, c_options)
  if sync or staleness == 0 then
    c_options.mode = capi.MV_MODE_SYNC
  elseif staleness then
    c_options.mode, c_options.staleness = capi.MV_MODE_STALE, staleness
  end
  c_options.role = ROLES[role]
  c_options.timeout_ms = milliseconds('timeout', timeout)
  c_options.start_timeout_ms = milliseconds('start_timeout', start_timeout)
  if options.mpi ~= nil then
    check_type('mpi', options.mpi, 'string')
    c_options.mpi_path = options.mpi
  end
  local own = own_launchers(1)
  -- The job on one machine without MPI, if this process is a rank of one.
  local job = bit.band(own, capi.MV_LAUNCHER_MULTIVERSO) ~= 0 and os.getenv('MULTIVERSO_JOB') or nil
  if options.mpi ~= nil or bit.band(own, capi.MV_LAUNCHER_MPI) ~= 0 and in_job() then
    c_options.transport = capi.MV_TRANSPORT_MPI
  elseif job then
    c_options.transport, c_options.job_name = capi.MV_TRANSPORT_LOCAL, job
    c_options.job_rank = tonumber(os.getenv('MULTIVERSO_RANK') or -1)
    c_options.job_size = tonumber(os.getenv('MULTIVERSO_SIZE') or -1)
  end
  local key = ('%s %s %s %s %s'):format(c_options.mode, tonumber(c_options.staleness), role,
    timeout, start_timeout)
  return c_options, options.mpi or job, key
end

--- Returns the open session; raises an error without one.
function session.current()
  if not current then
    error('MV_ERR_STATE: expected an open session: call multiverso.init() first', 0)
  end
  return current
end

function session.open(sync, options)
  local c_options, path, key = parse_options(sync, options)
  if current then
    if current.key ~= key then
      error('MV_ERR_STATE: a session is open with other options: call multiverso.shutdown() first',
        0)
    end
    return
  end
  local handle = ffi.new('MV_Session[1]')
  call(lib.MV_SessionOpen, c_options, handle)
  local description = ffi.new('MV_SessionDescription')
  description.struct_size = SIZEOF_DESCRIPTION
  call(lib.MV_SessionDescribe, handle[0], description)
  current = { handle = handle[0], description = description, key = key, path = path }
end

function session.close()
  if not current then return end
  local closing = current
  local ok, message = pcall(call, lib.MV_SessionClose, closing.handle)
  current = nil
  if not ok then
    lib.MV_SessionLeave(closing.handle, tostring(message)) -- an interrupted close keeps it open
    error(message, 0)
  end
end

--- Leaves the session without waiting; ranks that wait for this one receive the reason.
function session.leave(reason)
  if not current then return end
  local leaving = current
  current = nil
  lib.MV_SessionLeave(leaving.handle, reason)
end

-- A script that returns or fails closes its Lua state, which collects this object. A script that
-- calls os.exit does not, but then the library itself leaves the session.
local guard = newproxy(true)
getmetatable(guard).__gc = function()
  session.leave('its script ended without multiverso.shutdown()')
end
session.guard = guard

return session
