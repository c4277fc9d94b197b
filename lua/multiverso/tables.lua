--- Arrays and matrices of parameters that every worker can add to and get from.

local ffi = require 'ffi'
local capi = require 'multiverso.capi'
local elements = require 'multiverso.elements'
local session = require 'multiverso.session'
local lib, call = capi.lib, capi.call

local OPTION_NAMES = { dtype = true, name = true }
local MAX_NAME_BYTES = 63

local function check_extent(value, argument)
  if type(value) ~= 'number' then
    capi.reject('MV_ERR_TYPE', argument, 'a number', elements.describe(value))
  end
  if not (value >= 1 and value <= 2 ^ 53 and value % 1 == 0) then
    capi.reject('MV_ERR_VALUE', argument, 'an integer from 1 to 2^53', value)
  end
  return value
end

--- Returns the memory with the initial values, and its owner; nil for zeros.
local function initial_values(init_value, dtype, count, columns)
  if init_value == nil then return nil end
  if type(init_value) == 'number' or ffi.istype('int64_t', init_value) then
    local buffer = dtype.array(count)
    local value = elements.input({ init_value }, dtype, 1, nil, 'init_value')[0]
    for i = 0, count - 1 do buffer[i] = value end
    return buffer, buffer
  end
  return elements.input(init_value, dtype, count, columns, 'init_value')
end

--- Fills in the C options of a table; returns its dtype and the objects to which the options point.
local function fill_options(c_options, kind, rows, columns, init_value, options, is_master)
  options = options or {}
  if type(options) ~= 'table' then
    capi.reject('MV_ERR_TYPE', 'options', 'a table', type(options))
  end
  for name in pairs(options) do
    if not OPTION_NAMES[name] then
      capi.reject('MV_ERR_TYPE', 'options', 'dtype or name', tostring(name))
    end
  end
  c_options.kind = kind
  local dtype = elements.dtype(options.dtype or 'float32')
  c_options.dtype = dtype.code
  if options.name ~= nil then
    if type(options.name) ~= 'string' then
      capi.reject('MV_ERR_TYPE', 'name', 'a string', type(options.name))
    end
    if #options.name > MAX_NAME_BYTES or options.name:find('\0', 1, true) then
      capi.reject('MV_ERR_VALUE', 'name', ('at most %d bytes, none of them 0'):format(
        MAX_NAME_BYTES), options.name)
    end
    c_options.name = options.name
  end
  if kind == capi.MV_TABLE_ARRAY then
    check_extent(rows, 'size')
  elseif kind == capi.MV_TABLE_HASH then
    check_extent(columns, 'num_col')
    check_extent(rows, 'capacity')
    c_options.capacity, c_options.initializer = rows, capi.MV_INITIALIZER_ZEROS
  else
    check_extent(rows, 'num_row')
    check_extent(columns, 'num_col')
    check_extent(rows * columns, 'num_row * num_col')
  end
  local memory, owner = initial_values(init_value, dtype, rows * columns, columns)
  if is_master and memory ~= nil then c_options.init_value = memory end
  c_options.num_row, c_options.num_col = rows, columns
  return dtype, { memory, owner, options.name }
end

--- Creates a table. Collective.
local function create(class, kind, rows, columns, init_value, options)
  local open = session.current()
  local c_options = ffi.new('MV_TableOptions')
  call(lib.MV_TableOptionsInit, c_options)
  local is_master = tonumber(open.description.worker_id) == 0
  local ok, dtype, owners = pcall(fill_options, c_options, kind, rows, columns, init_value,
    options, is_master)
  local handle = ffi.new('MV_Table[1]')
  if not ok then
    -- The other ranks wait in MV_TableCreate: an invalid table, of no rows, makes them fail too.
    c_options.num_row, c_options.capacity, c_options.init_value = 0, 0, nil
    pcall(call, lib.MV_TableCreate, open.handle, c_options, handle)
    error(dtype, 0)
  end
  call(lib.MV_TableCreate, open.handle, c_options, handle)
  owners[1] = nil -- this use keeps the objects alive until the call has returned
  return setmetatable({
    _handle = ffi.gc(handle[0], lib.MV_TableFree),
    _dtype = dtype,
    _rows = rows,
    _columns = columns,
    _count = rows * columns,
  }, class)
end
jit.off(create)

--- Returns a boolean argument, or its default if it is nil. In Lua, 0 and {} count as true.
local function flag(value, argument, default)
  if value == nil then return default end
  if type(value) ~= 'boolean' then
    capi.reject('MV_ERR_TYPE', argument, 'a boolean', elements.describe(value))
  end
  return value
end

local function flags_of(sync)
  return flag(sync, 'sync', false) and capi.MV_COLLECTIVE or 0
end

local function get_all(self, rows, out, flags)
  local memory, result = elements.output(out, self._dtype, self._count, rows)
  call(lib.MV_TableGet, self._handle, memory, self._count, flags)
  return result()
end

local function add_all(self, data, columns)
  local memory
  -- Holds the data until C has read it, because a pointer does not keep its target alive.
  memory, self._held = elements.input(data, self._dtype, self._count, columns, 'data')
  call(lib.MV_TableAdd, self._handle, memory, self._count)
  self._held = nil
end

--- Changes one element atomically, and returns its value before.
local function exchange(self, name, position, ...)
  local memory = elements.input({ ... }, self._dtype, select('#', ...), nil, 'value')
  self._held = memory
  local place, before = elements.row_ids(position, 'index'), self._dtype.array(1)
  if select('#', ...) == 1 then
    call(lib[name], self._handle, place[0], place[1], memory, before)
  else
    call(lib[name], self._handle, place[0], place[1], memory, memory + 1, before)
  end
  self._held = nil
  return elements.to_lua(before[0])
end

local ArrayTableHandler = {}
ArrayTableHandler.__index = ArrayTableHandler

--- Creates a vector. Collective: all ranks pass the same arguments.
-- @param size number of elements
-- @param init_value initial values: `size` elements or one number; zeros by default. Those of the
--   master worker are used
-- @param options { dtype = 'float32' | 'float64' | 'int32' | 'int64', name = ... }
function ArrayTableHandler:new(size, init_value, options)
  return create(self, capi.MV_TABLE_ARRAY, size, 1, init_value, options)
end

--- Adds a delta of `size` elements; `data` can be reused when this returns.
-- @param sync has no effect: on return the delta is always applied or, in sync mode, in its round
function ArrayTableHandler:add(data, sync)
  flag(sync, 'sync')
  add_all(self, data, nil)
end

--- Returns the parameters in `out` if given, else in a tensor if Torch is loaded, else in a table.
-- @param sync true: all workers call it and get bitwise identical values
function ArrayTableHandler:get(out, sync)
  return get_all(self, nil, out, flags_of(sync))
end

--- Returns the parameters without taking part in a round: in sync mode those after the last
-- complete round, on one worker alone.
function ArrayTableHandler:peek(out)
  return get_all(self, nil, out, capi.MV_PEEK)
end

--- Adds to the element with this index, counted from 0, and returns its value before: a counter.
function ArrayTableHandler:fetch_add(index, delta)
  return exchange(self, 'MV_TableFetchAdd', { index, 0 }, delta or 1)
end

--- Sets an element to `new` if it equals `expected`, and returns its value before.
function ArrayTableHandler:compare_swap(index, expected, new)
  return exchange(self, 'MV_TableCompareSwap', { index, 0 }, expected, new)
end

local MatrixTableHandler = {}
MatrixTableHandler.__index = MatrixTableHandler

--- Creates a matrix. Collective, with `init_value` and `options` as for an array.
function MatrixTableHandler:new(num_row, num_col, init_value, options)
  return create(self, capi.MV_TABLE_MATRIX, num_row, num_col, init_value, options)
end

MatrixTableHandler.New = MatrixTableHandler.new -- the spelling on the API page of 2016

--- Adds a delta to the whole matrix, or to the rows with these ids, counted from 0.
-- Every occurrence of an id counts.
function MatrixTableHandler:add(data, row_ids, sync)
  flag(sync, 'sync')
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

local function get_matrix(self, row_ids, out, flags)
  if row_ids == nil then return get_all(self, self._rows, out, flags) end
  local ids, num_ids
  ids, num_ids, self._held_ids = elements.row_ids(row_ids)
  local count = num_ids * self._columns
  local memory, result = elements.output(out, self._dtype, count, num_ids)
  call(lib.MV_TableGetRows, self._handle, ids, num_ids, memory, count, flags)
  self._held_ids = nil
  return result()
end

--- Returns the whole matrix, or the rows with these ids in this order.
function MatrixTableHandler:get(row_ids, out, sync)
  return get_matrix(self, row_ids, out, flags_of(sync))
end

--- Does the same without taking part in a round, as that of an array.
function MatrixTableHandler:peek(row_ids, out)
  return get_matrix(self, row_ids, out, capi.MV_PEEK)
end

--- Do the same as those of an array, for the element of a row and a column.
function MatrixTableHandler:fetch_add(row, column, delta)
  return exchange(self, 'MV_TableFetchAdd', { row, column }, delta or 1)
end

function MatrixTableHandler:compare_swap(row, column, expected, new)
  return exchange(self, 'MV_TableCompareSwap', { row, column }, expected, new)
end

local HashTableHandler = {}
HashTableHandler.__index = HashTableHandler

--- Creates a table with a row of `num_col` zeros for each key, which is any integer of 64 bits.
-- Collective, with `options` as for an array.
-- @param capacity the most keys
function HashTableHandler:new(num_col, capacity, options)
  return create(self, capi.MV_TABLE_HASH, capacity, num_col, nil, options)
end

--- Runs an operation on keys with `width` elements per key in `delta` or `out`.
local function run(self, operation, keys, width, delta, out, flags)
  local ids, num_ids
  ids, num_ids, self._held_ids = elements.row_ids(keys, 'keys')
  local count = num_ids * width
  local source, sink, result
  if delta ~= nil then
    source, self._held = elements.input(delta, self._dtype, count, width, 'data')
  elseif width > 0 then
    sink, result = elements.output(out, self._dtype, count, num_ids)
  end
  call(lib.MV_TableRun, self._handle, operation, ids, num_ids, source, sink, count, flags or 0)
  self._held, self._held_ids = nil, nil
  return result and result()
end

--- Adds a delta to the rows of keys, which get rows if they have none.
function HashTableHandler:add(data, keys)
  run(self, 'add_keys', keys, self._columns, data)
end

--- Returns the rows of keys in this order.
-- @param insert false: keys without a row get none and are returned as zeros
function HashTableHandler:get(keys, out, insert, sync)
  local operation = flag(insert, 'insert', true) and 'fetch_keys' or 'get_keys'
  return run(self, operation, keys, self._columns, nil, out, flags_of(sync))
end

--- Returns the rows of keys without taking part in a round; keys without a row get none.
function HashTableHandler:peek(keys, out)
  return run(self, 'get_keys', keys, self._columns, nil, out, capi.MV_PEEK)
end

--- Takes the rows of keys away.
function HashTableHandler:remove(keys)
  run(self, 'remove_keys', keys, 0)
end

--- Returns the number of keys that have a row, on all nodes.
function HashTableHandler:count()
  local counts = ffi.new('int64_t[?]', capi.MV_KEY_COUNTS)
  call(lib.MV_TableKeyCounts, self._handle, counts)
  return tonumber(counts[0])
end

return {
  ArrayTableHandler = ArrayTableHandler,
  HashTableHandler = HashTableHandler,
  MatrixTableHandler = MatrixTableHandler,
}
