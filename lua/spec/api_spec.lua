-- The API table in docs/lua.md and the module contain the same names, which programs can overwrite.
local ffi = require 'ffi'
local multiverso = require 'multiverso'

local ROOT = debug.getinfo(1, 'S').source:match('^@(.*)lua/spec/') or ''

--- Returns the calls in the first column of the page's tables, by their names.
local function documented_calls()
  local file = assert(io.open(ROOT .. 'docs/lua.md'))
  local names = {}
  for line in file:lines() do
    local call = line:match('^| `([^`]+)`')
    if call then names[call:match('^[%w_%.:]+')] = call end
  end
  file:close()
  return names
end

local function find(name)
  if name:find('^multiverso%.') then return multiverso[name:match('%.(.*)$')] end
  local class, method = name:match('^(%w+):([%w_]+)$')
  return class and multiverso[class] and multiverso[class][method]
end

describe('docs/lua.md', function()
  local names = documented_calls()

  it('documents the calls of the original Torch binding', function()
    for _, call in ipairs {
      'multiverso.init(sync)', 'multiverso.barrier()', 'multiverso.shutdown()',
      'multiverso.num_workers()', 'multiverso.worker_id()', 'multiverso.server_id()',
      'ArrayTableHandler:new(size, init_value)', 'ArrayTableHandler:add(data, sync)',
      'ArrayTableHandler:get()', 'MatrixTableHandler:new(num_row, num_col, init_value)',
      'MatrixTableHandler:New(num_row, num_col, init_value)',
      'MatrixTableHandler:add(data, row_ids, sync)', 'MatrixTableHandler:get(row_ids)',
    } do
      assert.equal(call, names[call:match('^[%w_%.:]+')])
    end
  end)

  it('documents only names that exist', function()
    for name in pairs(names) do assert.is_function(find(name), name) end
  end)

  it('documents every public name', function()
    for name, value in pairs(multiverso) do
      if type(value) == 'function' then assert.is_string(names['multiverso.' .. name], name) end
      if type(value) == 'table' then
        for method, f in pairs(value) do
          if type(f) == 'function' then assert.is_string(names[name .. ':' .. method], method) end
        end
      end
    end
  end)
end)

describe('a program that overwrites public functions with numbers', function()
  local restore = {}

  --- Overwrites the functions of a table; returns them in a new table.
  local function overwrite(owner)
    local functions = {}
    for name, value in pairs(owner) do
      if type(value) == 'function' then functions[name], owner[name] = value, 0 end
    end
    restore[owner] = functions
    return functions
  end

  teardown(function()
    for owner, functions in pairs(restore) do
      for name, value in pairs(functions) do owner[name] = value end
    end
  end)

  -- The tutorial of 2016 writes multiverso.worker_id = multiverso.worker_id().
  it('can call all others', function()
    local mv = overwrite(multiverso)
    local array = overwrite(multiverso.ArrayTableHandler)
    local matrix = overwrite(multiverso.MatrixTableHandler)
    mv.init()
    for _, name in ipairs {
      'rank', 'size', 'num_workers', 'num_servers', 'worker_id', 'server_id',
    } do
      assert.is_number(mv[name](), name)
    end
    assert.equal(mv.worker_id() == 0, mv.is_master_worker())
    local workers = mv.num_workers()
    local vector = array.new(multiverso.ArrayTableHandler, 2, 1)
    array.add(vector, { 1, 2 })
    for _, new in ipairs { matrix.new, matrix.New } do
      local rows = new(multiverso.MatrixTableHandler, 2, 1)
      matrix.add(rows, { 1, 2 })
      matrix.add(rows, { 3 }, { 1 })
      mv.barrier()
      assert.same({ { workers }, { 5 * workers } }, matrix.get(rows))
      assert.same({ { 5 * workers } }, matrix.get(rows, { 1 }))
    end
    assert.same({ 1 + workers, 1 + 2 * workers }, array.get(vector))
    assert.equal(workers, mv.aggregate(ffi.new('float[1]', 1))[0])
    mv.finish()
    mv.shutdown()
  end)
end)
