--- Converts between Lua tables, ffi arrays or Torch tensors and the typed buffers of the C API.
--
-- An ffi array of the right dtype and a contiguous tensor of the right type are not copied.

local ffi = require 'ffi'
local capi = require 'multiverso.capi'

local elements = {}

--- The dtypes of tables: name, code in the C API, C type and Torch class.
local DTYPES = {
  float32 = { name = 'float32', code = capi.MV_FLOAT32, ctype = 'float', torch = 'FloatTensor' },
  float64 = { name = 'float64', code = capi.MV_FLOAT64, ctype = 'double', torch = 'DoubleTensor' },
  int32 = { name = 'int32', code = capi.MV_INT32, ctype = 'int32_t', torch = 'IntTensor',
            min = -2 ^ 31, max = 2 ^ 31 - 1 },
  -- Lua numbers are doubles, which represent all integers up to 2^53.
  int64 = { name = 'int64', code = capi.MV_INT64, ctype = 'int64_t', torch = 'LongTensor',
            min = -2 ^ 53, max = 2 ^ 53 },
}
local BY_CTYPE = {}
for _, dtype in pairs(DTYPES) do
  dtype.size = ffi.sizeof(dtype.ctype)
  dtype.array = ffi.typeof(dtype.ctype .. '[?]')
  BY_CTYPE[tonumber(ffi.typeof(dtype.ctype))] = dtype
end

local has_torch, torch = pcall(require, 'torch')
has_torch = has_torch and type(torch) == 'table' and torch.FloatTensor ~= nil

--- Returns the dtype with the given name.
function elements.dtype(name)
  local dtype = DTYPES[name]
  if not dtype then
    capi.reject('MV_ERR_TYPE', 'dtype', 'float32, float64, int32 or int64', tostring(name))
  end
  return dtype
end

local parsed_types = {} -- results of `parse_ctype`, by type id

--- Returns what the C type of `data` is: its name, its dtype, and whether a pointer or an array.
local function parse_ctype(data)
  local ctype = ffi.typeof(data)
  local id = tonumber(ctype)
  local parsed = parsed_types[id]
  if parsed then return parsed end
  local text = tostring(ctype):match('^ctype<(.*)>$'):gsub('%(&%)', ''):gsub('const ', '')
  local element, suffix = text:match('^([%w_ ]-)%s*([%[%*].*)$')
  local ok, base = pcall(ffi.typeof, element or '')
  parsed = {
    text = text,
    dtype = ok and BY_CTYPE[tonumber(base)] or nil,
    is_pointer = suffix == '*',
    is_array = suffix ~= nil and suffix:find('^%[') ~= nil,
  }
  parsed_types[id] = parsed
  return parsed
end

local function is_tensor(data)
  return has_torch and torch.isTensor(data)
end

local function describe(value)
  if type(value) == 'cdata' then return 'cdata ' .. parse_ctype(value).text end
  if is_tensor(value) then return value:type() end
  if type(value) == 'number' then return tostring(value) end
  return 'a value of type ' .. type(value)
end
elements.describe = describe

local function reject_count(argument, expected, received)
  capi.reject('MV_ERR_VALUE', argument, ('%d elements'):format(expected), ('%d'):format(received))
end

local function checked_element(value, dtype, argument, position)
  if type(value) == 'number' then
    local min = dtype.min
    if not min or (value % 1 == 0 and value >= min and value <= dtype.max) then
      return value
    end
  elseif dtype.min and type(value) == 'cdata'
    and (ffi.istype('int64_t', value) or ffi.istype('uint64_t', value)) then
    if ffi.cast(dtype.ctype, value) == value then return value end
  end
  capi.reject(type(value) == 'number' and 'MV_ERR_VALUE' or 'MV_ERR_TYPE',
    ('%s, element %d'):format(argument, position), 'a number that fits ' .. dtype.name,
    type(value) == 'table' and 'a table' or tostring(value))
end

--- Returns the number of elements in a table of numbers, or in a table of rows.
local function count_of(data)
  if type(data[1]) ~= 'table' then return #data end
  local count = 0
  for i = 1, #data do
    if type(data[i]) ~= 'table' then
      capi.reject('MV_ERR_TYPE', ('row %d'):format(i), 'a table', describe(data[i]))
    end
    count = count + #data[i]
  end
  return count
end

local function from_table(data, dtype, count, columns, argument)
  local received = count_of(data)
  if received ~= count then reject_count(argument, count, received) end
  local buffer = dtype.array(count)
  if type(data[1]) ~= 'table' then
    for i = 1, count do buffer[i - 1] = checked_element(data[i], dtype, argument, i) end
    return buffer
  end
  local num_filled = 0
  for i = 1, #data do
    if #data[i] ~= columns then
      reject_count(('%s, row %d'):format(argument, i), columns, #data[i])
    end
    for j = 1, columns do
      buffer[num_filled] = checked_element(data[i][j], dtype, argument, num_filled + 1)
      num_filled = num_filled + 1
    end
  end
  return buffer
end

--- Returns `data` if it is an ffi array of `count` elements of the dtype, or a pointer to elements
-- of the dtype, whose number is unknown; raises an error otherwise.
local function from_cdata(data, dtype, count, argument)
  local kind = parse_ctype(data)
  if kind.dtype ~= dtype or not (kind.is_array or kind.is_pointer) then
    capi.reject('MV_ERR_TYPE', argument, ('an array of %s'):format(dtype.ctype), describe(data))
  end
  if kind.is_array then
    local received = ffi.sizeof(data) / dtype.size
    if received ~= count then reject_count(argument, count, received) end
  end
  return data
end

local function from_tensor(data, dtype, count, argument)
  if data:nElement() ~= count then reject_count(argument, count, data:nElement()) end
  local tensor = data
  if tensor:type() ~= 'torch.' .. dtype.torch then tensor = tensor:type('torch.' .. dtype.torch) end
  return tensor:contiguous()
end

--- Returns `data` as memory of `count` elements, and the object that owns this memory.
-- @param columns elements of each row, if `data` may be a table of rows
function elements.input(data, dtype, count, columns, argument)
  if type(data) == 'table' and not is_tensor(data) then
    local buffer = from_table(data, dtype, count, columns, argument)
    return buffer, buffer
  elseif type(data) == 'cdata' and not is_tensor(data) then
    return from_cdata(data, dtype, count, argument), data
  elseif is_tensor(data) then
    local tensor = from_tensor(data, dtype, count, argument)
    return tensor:data(), tensor
  end
  capi.reject('MV_ERR_TYPE', argument, has_torch and 'a table, an ffi array or a tensor'
    or 'a table or an ffi array', describe(data))
end

--- Returns memory for `count` elements, and a function that returns the result: `out` if given,
-- else a new tensor if Torch is loaded, else a table.
-- @param rows number of rows of the result; nil for a vector
function elements.output(out, dtype, count, rows)
  if out == nil then
    if has_torch and count > 0 then
      local class = torch[dtype.torch]
      local tensor = rows and class(rows, count / rows) or class(count)
      return tensor:data(), function() return tensor end
    end
    local buffer = dtype.array(count)
    return buffer, function() return elements.to_table(buffer, count, rows) end
  end
  if is_tensor(out) then
    if out:type() ~= 'torch.' .. dtype.torch or not out:isContiguous() then
      capi.reject('MV_ERR_TYPE', 'out', 'a contiguous torch.' .. dtype.torch, describe(out))
    end
    if out:nElement() ~= count then reject_count('out', count, out:nElement()) end
    return out:data(), function() return out end
  end
  if type(out) ~= 'cdata' then
    capi.reject('MV_ERR_TYPE', 'out', ('an array of %s'):format(dtype.ctype), describe(out))
  end
  return from_cdata(out, dtype, count, 'out'), function() return out end
end

--- Returns an element as a number, or an int64_t that no number can represent as it is.
function elements.to_lua(value)
  local number = tonumber(value)
  if type(value) == 'cdata' and not (number >= -2 ^ 53 and number <= 2 ^ 53
    and ffi.cast('int64_t', number) == value) then
    return value
  end
  return number
end

--- Returns `count` elements as a table, or as a table of `rows` rows.
function elements.to_table(buffer, count, rows)
  local result = {}
  if not rows then
    for i = 1, count do result[i] = elements.to_lua(buffer[i - 1]) end
    return result
  end
  local columns = count / rows
  for i = 1, rows do
    local row = {}
    for j = 1, columns do row[j] = elements.to_lua(buffer[(i - 1) * columns + j - 1]) end
    result[i] = row
  end
  return result
end

--- Returns row ids, counted from 0, as int64; their number; and the owner of their memory.
function elements.row_ids(row_ids, name)
  name = name or 'row_ids'
  if is_tensor(row_ids) then
    local count = row_ids:nElement()
    if count == 0 then return DTYPES.int64.array(0), 0 end
    local memory, owner = elements.input(row_ids, DTYPES.int64, count, nil, name)
    return memory, count, owner
  elseif type(row_ids) == 'table' then
    local buffer = from_table(row_ids, DTYPES.int64, #row_ids, nil, name)
    return buffer, #row_ids, buffer
  elseif type(row_ids) == 'cdata' then
    local kind = parse_ctype(row_ids)
    if kind.dtype and kind.is_array and kind.dtype.min then
      local count = ffi.sizeof(row_ids) / kind.dtype.size
      if kind.dtype.name == 'int64' then return row_ids, count, row_ids end
      local buffer = DTYPES.int64.array(count)
      for i = 0, count - 1 do buffer[i] = row_ids[i] end
      return buffer, count, buffer
    end
  end
  capi.reject('MV_ERR_TYPE', name, 'a table of numbers or an array of int64_t',
    describe(row_ids))
end

--- Returns the memory, dtype and element count of an array that a call changes in place.
function elements.in_place(data)
  if is_tensor(data) then
    for _, dtype in pairs(DTYPES) do
      if data:type() == 'torch.' .. dtype.torch and data:isContiguous() then
        return data:data(), dtype, data:nElement()
      end
    end
  elseif type(data) == 'cdata' then
    local kind = parse_ctype(data)
    if kind.dtype and kind.is_array then
      return data, kind.dtype, ffi.sizeof(data) / kind.dtype.size
    end
  end
  capi.reject('MV_ERR_TYPE', 'array',
    'an array of float, double, int32_t or int64_t, or a contiguous tensor of them', describe(data))
end

return elements
