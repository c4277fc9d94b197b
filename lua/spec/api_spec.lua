-- The API table in docs/lua.md and the module contain the same names.
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
  local class, method = name:match('^(%w+):(%w+)$')
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
