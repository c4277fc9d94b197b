-- Torch tensors as arguments and results, with a fake Torch7 that has the methods the binding uses.
local ffi = require 'ffi'

local torch = {}
local Tensor = {}
Tensor.__index = Tensor

local CTYPES = {
  FloatTensor = 'float', DoubleTensor = 'double', IntTensor = 'int32_t', LongTensor = 'int64_t',
  CharTensor = 'int8_t',
}
local num_copies = 0 -- conversions to another type or layout since the test began

for name, ctype in pairs(CTYPES) do
  torch[name] = function(first, second)
    local values = type(first) == 'table' and first or nil
    local count = values and #values or first * (second or 1)
    local tensor = setmetatable({ name = 'torch.' .. name, count = count }, Tensor)
    tensor.rows, tensor.columns = not values and second and first or nil, second
    tensor.storage = ffi.new(ctype .. '[?]', math.max(count, 1))
    for i = 1, values and count or 0 do tensor.storage[i - 1] = values[i] end
    return tensor
  end
end
function torch.isTensor(value) return getmetatable(value) == Tensor end
function Tensor:nElement() return self.count end
function Tensor:isContiguous() return not self.is_transposed end
function Tensor:data() return ffi.cast(CTYPES[self.name:sub(7)] .. '*', self.storage) end
function Tensor:contiguous()
  if self:isContiguous() then return self end
  num_copies = num_copies + 1
  local tensor = torch[self.name:sub(7)](self.rows, self.columns)
  for i = 0, self.count - 1 do -- stored in column-major order
    tensor.storage[i] = self.storage[i % self.columns * self.rows + math.floor(i / self.columns)]
  end
  return tensor
end
function Tensor:type(name)
  if not name then return self.name end
  num_copies = num_copies + 1
  local tensor = torch[name:sub(7)](self.count)
  for i = 0, self.count - 1 do tensor.storage[i] = self.storage[i] end
  return tensor
end
function Tensor:values()
  local values = {}
  for i = 1, self.count do values[i] = tonumber(self.storage[i - 1]) end
  return values
end

describe('with Torch', function()
  local multiverso

  local function unload()
    for _, name in ipairs { '', '.elements', '.session', '.tables', '.capi' } do
      package.loaded['multiverso' .. name] = nil
    end
  end

  setup(function()
    package.loaded.torch = torch
    unload()
    multiverso = require 'multiverso'
  end)
  teardown(function()
    package.loaded.torch = nil
    unload()
  end)
  before_each(function()
    multiverso.init()
    num_copies = 0
  end)
  after_each(function() multiverso.shutdown() end)

  it('returns tensors from get', function()
    local array = multiverso.ArrayTableHandler:new(3, torch.FloatTensor({ 1, 2, 3 })):get()
    assert.same({ 'torch.FloatTensor', 3 }, { array:type(), array:nElement() })
    assert.same({ 1, 2, 3 }, array:values())
    local matrix = multiverso.MatrixTableHandler:new(2, 2, { 1, 2, 3, 4 }, { dtype = 'float64' })
    local rows = matrix:get({ 1, 1, 0 })
    assert.same({ 'torch.DoubleTensor', 3, 2 }, { rows:type(), rows.rows, rows.columns })
    assert.same({ 3, 4, 3, 4, 1, 2 }, rows:values())
    assert.same({}, matrix:get({}))
  end)

  it('does not copy a contiguous tensor of the right type', function()
    local workers = multiverso.num_workers()
    local table = multiverso.ArrayTableHandler:new(2)
    table:add(torch.FloatTensor({ 1, 2 }))
    multiverso.barrier()
    local out = torch.FloatTensor(2)
    assert.equal(out, table:get(out))
    assert.same({ workers, 2 * workers }, out:values())
    assert.equal(0, num_copies)
    multiverso.barrier()
  end)

  it('converts tensors of other types and layouts', function()
    local workers = multiverso.num_workers()
    local table = multiverso.MatrixTableHandler:new(2, 2)
    table:add(torch.DoubleTensor({ 1, 2, 3, 4 }))
    local transposed = torch.FloatTensor(2, 2)
    for i = 0, 3 do transposed.storage[i] = i end
    transposed.is_transposed = true
    table:add(transposed)
    table:add(torch.FloatTensor({ 5, 5 }), torch.LongTensor({ 1 }))
    multiverso.barrier()
    local values = table:get():values()
    assert.same({ 1 * workers, 4 * workers, 9 * workers, 12 * workers }, values)
    assert.equal(2, num_copies)
    multiverso.barrier()
  end)

  it('sums tensors in place with aggregate', function()
    local tensor = torch.LongTensor({ 1, multiverso.worker_id() })
    assert.equal(tensor, multiverso.aggregate(tensor))
    local workers = multiverso.num_workers()
    assert.same({ workers, workers * (workers - 1) / 2 }, tensor:values())
  end)

  it('rejects tensors of the wrong size or type', function()
    local table = multiverso.ArrayTableHandler:new(2)
    assert.has_error(function() table:add(torch.FloatTensor(3)) end,
      'MV_ERR_VALUE: data: expected 2 elements, received 3')
    assert.has_error(function() table:get(torch.DoubleTensor(2)) end,
      'MV_ERR_TYPE: out: expected a contiguous torch.FloatTensor, received torch.DoubleTensor')
  end)
end)
