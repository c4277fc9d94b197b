--- The tables: arrays and matrices of parameters that every worker can add to and get from.

local ffi = require 'ffi'
local capi = require 'multiverso.capi'
local elements = require 'multiverso.elements'
local session = require 'multiverso.session'
local lib, call = capi.lib, capi.call

local KNOWN = { dtype = true, name = true }

local function extent(value, what)
  if type(value) ~= 'number' then
    capi.refuse('MV_ERR_TYPE', what, 'a number', elements.describe(value))
  end
  if not (value >= 1 and value <= 2 ^ 53 and value % 1 == 0) then
    capi.refuse('MV_ERR_VALUE', what, 'an integer from 1 to 2^53', value)
  end
  return value
end

--- Returns what `init_value` comes to: nil for zeros, or memory and what keeps it.
local function initial(init_value, dtype, count, columns)
  if init_value == nil then return nil end
  if type(init_value) == 'number' then
    local buffer = dtype.array(count)
    local value = elements.input({ init_value }, dtype, 1, nil, 'init_value')[0]
    for i = 0, count - 1 do buffer[i] = value end
    return buffer, buffer
  end
  return elements.input(init_value, dtype, count, columns, 'init_value')
end

--- Fills in what table to create; returns dtype and what the options point to.
local function specify(raw, kind, rows, columns, init_value, options, is_master)
  options = options or {}
  if type(options) ~= 'table' then
    capi.refuse('MV_ERR_TYPE', 'options', 'a table', type(options))
  end
  for name in pairs(options) do
    if not KNOWN[name] then
      capi.refuse('MV_ERR_TYPE', 'options', 'dtype or name', tostring(name))
    end
  end
  raw.kind = kind
  local dtype = elements.dtype(options.dtype or 'float32')
  raw.dtype = dtype.code
  if options.name ~= nil then
    if type(options.name) ~= 'string' then
      capi.refuse('MV_ERR_TYPE', 'name', 'a string', type(options.name))
    end
    raw.name = options.name
  end
  if kind == capi.MV_TABLE_ARRAY then
    extent(rows, 'size')
  else
    extent(rows, 'num_row')
    extent(columns, 'num_col')
    extent(rows * columns, 'num_row * num_col')
  end
  local memory, keep = initial(init_value, dtype, rows * columns, columns)
  if is_master and memory ~= nil then raw.init_value = memory end
  raw.num_row, raw.num_col = rows, columns
  return dtype, { memory, keep, options.name }
end

--- Creates a table together with all ranks.
local function create(class, kind, rows, columns, init_value, options)
  local open = session.current()
  local raw = ffi.new('MV_TableOptions')
  call(lib.MV_TableOptionsInit, raw)
  local is_master = tonumber(open.description.worker_id) == 0
  local ok, dtype, keep = pcall(specify, raw, kind, rows, columns, init_value, options, is_master)
  local handle = ffi.new('MV_Table[1]')
  if not ok then
    -- The others are creating theirs: taking part with a table of no rows tells them.
    raw.num_row, raw.init_value = 0, nil
    pcall(call, lib.MV_TableCreate, open.handle, raw, handle)
    error(dtype, 0)
  end
  call(lib.MV_TableCreate, open.handle, raw, handle)
  keep[1] = nil -- until here the options pointed to it
  return setmetatable({
    _handle = ffi.gc(handle[0], lib.MV_TableFree),
    _dtype = dtype,
    _rows = rows,
    _columns = columns,
    _count = rows * columns,
  }, class)
end
jit.off(create)

local function get_all(self, rows, out, sync)
  local memory, result = elements.output(out, self._dtype, self._count, rows)
  call(lib.MV_TableGet, self._handle, memory, self._count, sync and capi.MV_COLLECTIVE or 0)
  return result()
end

local function add_all(self, data, columns)
  local memory
  -- Held here until C has read it: a pointer alone does not keep what it points to.
  memory, self._held = elements.input(data, self._dtype, self._count, columns, 'data')
  call(lib.MV_TableAdd, self._handle, memory, self._count)
  self._held = nil
end

local ArrayTableHandler = {}
ArrayTableHandler.__index = ArrayTableHandler

--- Creates a vector. Collective: all ranks create the same.
-- @param size how many elements
-- @param init_value what it holds at first: `size` elements or one number; zeros by default. The
--   master worker's counts
-- @param options { dtype = 'float32' | 'float64' | 'int32' | 'int64', name = ... }
function ArrayTableHandler:new(size, init_value, options)
  return create(self, capi.MV_TABLE_ARRAY, size, 1, init_value, options)
end

--- Adds a delta of `size` elements; `data` can be reused when this returns.
-- @param sync makes no difference: the delta has been applied, or is in its round, in any case
function ArrayTableHandler:add(data, sync) -- luacheck: no unused args
  add_all(self, data, nil)
end

--- Returns the parameters: a tensor where Torch is, else a table; or `out`, filled in place.
-- @param sync true: all workers call it and get the same bits
function ArrayTableHandler:get(out, sync)
  return get_all(self, nil, out, sync)
end

local MatrixTableHandler = {}
MatrixTableHandler.__index = MatrixTableHandler

--- Creates a matrix. Collective: all ranks create the same. Parameters as for an array.
function MatrixTableHandler:new(num_row, num_col, init_value, options)
  return create(self, capi.MV_TABLE_MATRIX, num_row, num_col, init_value, options)
end

--- Adds a delta to the whole matrix, or to the rows with these ids, which are counted from 0.
-- A row that is named twice gets both.
function MatrixTableHandler:add(data, row_ids, sync) -- luacheck: no unused args
  if row_ids == nil then
    add_all(self, data, self._columns)
    return
  end
  local ids, num_ids, memory
  ids, num_ids, self._held_ids = elements.row_ids(row_ids)
  local count = num_ids * self._columns
  memory, self._held = elements.input(data, self._dtype, count, self._columns, 'data')
  call(lib.MV_TableAddRows, self._handle, ids, num_ids, memory, count)
  self._held, self._held_ids = nil, nil
end

--- Returns the whole matrix, or the rows with these ids in this order.
function MatrixTableHandler:get(row_ids, out, sync)
  if row_ids == nil then return get_all(self, self._rows, out, sync) end
  local ids, num_ids
  ids, num_ids, self._held_ids = elements.row_ids(row_ids)
  local count = num_ids * self._columns
  local memory, result = elements.output(out, self._dtype, count, num_ids)
  call(lib.MV_TableGetRows, self._handle, ids, num_ids, memory, count,
    sync and capi.MV_COLLECTIVE or 0)
  self._held_ids = nil
  return result()
end

return { ArrayTableHandler = ArrayTableHandler, MatrixTableHandler = MatrixTableHandler }
