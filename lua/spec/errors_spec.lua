-- A call that fails raises a Lua error that names the cause, and changes no table.
local ffi = require 'ffi'
local multiverso = require 'multiverso'

--- Checks that f(...) raises an error whose message matches the pattern.
local function fails(pattern, f, ...)
  local ok, message = pcall(f, ...)
  assert.is_false(ok)
  assert.is_string(message)
  assert.is_truthy(message:find(pattern), message .. '\ndoes not match ' .. pattern)
end

describe('without a session', function()
  for _, name in ipairs { 'barrier', 'finish', 'num_workers', 'worker_id', 'server_id', 'rank' } do
    it('tells the caller of ' .. name .. ' to call init', function()
      fails('^MV_ERR_STATE: .*call multiverso%.init', multiverso[name])
    end)
  end

  it('rejects table creation', function()
    fails('call multiverso%.init', multiverso.ArrayTableHandler.new, multiverso.ArrayTableHandler, 3)
  end)

  it('treats shutdown as a no-op', function() multiverso.shutdown() end)

  for message, arguments in pairs {
    ['^MV_ERR_TYPE: sync: expected a boolean, received string'] = { 'yes' },
    ['^MV_ERR_TYPE: options: expected .*, received speed'] = { false, { speed = 1 } },
    ['^MV_ERR_VALUE: role: .* received boss'] = { false, { role = 'boss' } },
    ['^MV_ERR_VALUE: timeout: .* received 0'] = { false, { timeout = 0 } },
    ['^MV_ERR_VALUE: start_timeout: .* received %-1'] = { false, { start_timeout = -1 } },
    ['^MV_ERR_VALUE: staleness: .* received %-1'] = { false, { staleness = -1 } },
    ['^MV_ERR_VALUE: staleness: expected nil or 0 with sync'] = { true, { staleness = 1 } },
  } do
    it('rejects init options: ' .. message, function() fails(message, multiverso.init, unpack(arguments)) end)
  end
end)

describe('a table', function()
  local array, matrix
  before_each(function()
    multiverso.init()
    array = multiverso.ArrayTableHandler:new(3, { 1, 2, 3 })
    matrix = multiverso.MatrixTableHandler:new(2, 2, { 1, 2, 3, 4 })
  end)
  after_each(function()
    assert.same({ 1, 2, 3 }, array:get()) -- the failed call changed nothing
    assert.same({ { 1, 2 }, { 3, 4 } }, matrix:get())
    multiverso.shutdown()
  end)

  it('rejects data of the wrong size', function()
    fails('^MV_ERR_VALUE: data: expected 3 elements, received 2', array.add, array, { 1, 2 })
    fails('expected 3 elements, received 4', array.add, array, ffi.new('float[4]'))
    fails('expected 4 elements, received 3', matrix.add, matrix, { { 1, 2 }, { 3 } })
    fails('row 1: expected 2 elements, received 3', matrix.add, matrix, { { 1, 2, 3 }, { 4 } })
    fails('expected 2 elements, received 4', matrix.add, matrix, { 1, 2, 3, 4 }, { 0 })
    fails('expected 3 elements, received 2', array.get, array, ffi.new('float[2]'))
  end)

  it('rejects data of the wrong type', function()
    fails('^MV_ERR_TYPE: data: .*received cdata double', array.add, array, ffi.new('double[3]'))
    fails('element 2: expected a number', array.add, array, { 1, 'x', 3 })
    fails('received a value of type string', array.add, array, 'abc')
    fails('received a value of type nil', array.add, array)
    fails('^MV_ERR_TYPE: out: expected an array of float', array.get, array, {})
    fails('^MV_ERR_TYPE', array.add, array, ffi.new('MV_SessionOptions'))
  end)

  it('rejects flags that are not booleans', function()
    local hash = multiverso.HashTableHandler:new(2, 10)
    for _, flag in ipairs { 0, 1, 'false', { 1, 2 } } do
      fails('^MV_ERR_TYPE: sync: expected a boolean', array.get, array, nil, flag)
      fails('^MV_ERR_TYPE: sync: expected a boolean', array.add, array, { 9, 9, 9 }, flag)
      fails('^MV_ERR_TYPE: sync: expected a boolean', matrix.get, matrix, { 0 }, nil, flag)
      fails('^MV_ERR_TYPE: sync: expected a boolean', matrix.add, matrix, { 9, 9 }, { 0 }, flag)
      fails('^MV_ERR_TYPE: sync: expected a boolean', hash.get, hash, { 7 }, nil, true, flag)
      fails('^MV_ERR_TYPE: insert: expected a boolean', hash.get, hash, { 7 }, nil, flag)
    end
    assert.equal(0, hash:count())
  end)

  it('rejects row ids out of range', function()
    for _, id in ipairs { 2, -1, 2 ^ 40 } do
      local text = ('^MV_ERR_INDEX: .*row_ids%%[1%%]: expected 0 to 1, received %.0f'):format(id)
      text = text:gsub('%-', '%%-')
      fails(text, matrix.get, matrix, { 0, id })
      fails(text, matrix.add, matrix, { 9, 9, 9, 9 }, { 0, id })
    end
    fails('row_ids, element 1: .*received 0.5', matrix.get, matrix, { 0.5 })
    fails('row_ids, element 1: .*received nan', matrix.get, matrix, { 0 / 0 })
    fails('^MV_ERR_TYPE: row_ids', matrix.get, matrix, ffi.new('float[1]'))
    fails('^MV_ERR_TYPE: row_ids', matrix.get, matrix, 'all')
  end)

  it('rejects values that the integer dtype cannot represent', function()
    local table = multiverso.ArrayTableHandler:new(1, nil, { dtype = 'int32' })
    fails('fits int32, received 2147483648', table.add, table, { 2 ^ 31 })
    fails('fits int32, received 0.5', table.add, table, { 0.5 })
    assert.same({ 0 }, table:get())
  end)

  for message, arguments in pairs {
    ['size: expected an integer'] = { 'ArrayTableHandler', 0 },
    ['size: expected a number'] = { 'ArrayTableHandler', 'three' },
    ['init_value: expected 3 elements, received 2'] = { 'ArrayTableHandler', 3, { 1, 2 } },
    ['dtype: expected .* received float16'] = { 'ArrayTableHandler', 3, nil, { dtype = 'float16' } },
    ['num_col: expected'] = { 'MatrixTableHandler', 2, 1.5 },
    ['num_row %* num_col: expected'] = { 'MatrixTableHandler', 2 ^ 40, 2 ^ 40 },
  } do
    it('rejects creation arguments: ' .. message, function()
      local class = multiverso[arguments[1]]
      fails(message, class.new, class, unpack(arguments, 2, 4))
    end)
  end

  it('rejects calls after its session is closed', function()
    local array_before, another = array, multiverso.ArrayTableHandler:new(1)
    multiverso.shutdown()
    fails('^MV_ERR_HANDLE: .*closed', another.get, another)
    fails('^MV_ERR_HANDLE: .*closed', array_before.add, array_before, { 1, 2, 3 })
    multiverso.init()
    array = multiverso.ArrayTableHandler:new(3, { 1, 2, 3 })
    matrix = multiverso.MatrixTableHandler:new(2, 2, { 1, 2, 3, 4 })
  end)
end)

describe('ranks with different arguments', function()
  it('all receive an error', function()
    multiverso.init()
    if multiverso.num_workers() > 1 then
      local size = 3 + multiverso.worker_id()
      fails('^MV_ERR_MISMATCH: ', multiverso.ArrayTableHandler.new, multiverso.ArrayTableHandler, size)
      -- An invalid argument on one rank is an error on all ranks, and no rank waits.
      size = multiverso.is_master_worker() and -1 or 3
      fails(multiverso.is_master_worker() and 'size: expected' or '^MV_ERR_',
        multiverso.ArrayTableHandler.new, multiverso.ArrayTableHandler, size)
    end
    assert.same({ 0 }, multiverso.ArrayTableHandler:new(1):get())
    multiverso.shutdown()
  end)
end)
