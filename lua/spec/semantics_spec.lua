-- What sessions and tables do with any number of workers, in each mode.
local ffi = require 'ffi'
local multiverso = require 'multiverso'
local has_torch = pcall(require, 'torch')

local function list_of(count, f)
  local result = {}
  for i = 1, count do result[i] = f and f(i) or 0 end
  return result
end

describe('a session', function()
  before_each(function() multiverso.init() end)
  after_each(function() multiverso.shutdown() end)

  it('has as many workers as mpirun started', function()
    assert.equal(tonumber(os.getenv('MULTIVERSO_TEST_SIZE') or 1), multiverso.num_workers())
    assert.equal(multiverso.num_workers(), multiverso.size())
    assert.equal(multiverso.num_workers(), multiverso.num_servers())
  end)

  it('numbers workers and servers from 0', function()
    for _, id in ipairs { 'worker_id', 'server_id', 'rank' } do
      local seen = multiverso.ArrayTableHandler:new(multiverso.size())
      local own_index = multiverso[id]() + 1
      seen:add(list_of(multiverso.size(), function(i) return i == own_index and 1 or 0 end))
      multiverso.barrier()
      assert.same(list_of(multiverso.size(), function() return 1 end), seen:get())
    end
    assert.equal(multiverso.worker_id() == 0, multiverso.is_master_worker())
  end)

  it('can be reopened', function()
    multiverso.shutdown()
    multiverso.init()
    assert.equal(0, multiverso.ArrayTableHandler:new(1):get()[1])
  end)

  it('is reused by init with the same options and protected from others', function()
    multiverso.init()
    multiverso.init(false, { timeout = 1800, start_timeout = 120 })
    assert.has_error(function() multiverso.init(true) end,
      'MV_ERR_STATE: a session is open with other options: call multiverso.shutdown() first')
  end)

  it('sums arrays over the workers', function()
    local workers = multiverso.num_workers()
    local array = ffi.new('double[3]', 1, 2, multiverso.worker_id())
    assert.equal(array, multiverso.aggregate(array))
    assert.same({ workers, 2 * workers, workers * (workers - 1) / 2 },
      { array[0], array[1], array[2] })
  end)
end)

describe('an array table', function()
  before_each(function() multiverso.init() end)
  after_each(function() multiverso.shutdown() end)

  it('starts with zeros', function()
    assert.same(list_of(5), multiverso.ArrayTableHandler:new(5):get())
  end)

  it("starts with the master's values", function()
    local value = multiverso.is_master_worker() and { 1, 2, 3 } or { 9, 9, 9 }
    assert.same({ 1, 2, 3 }, multiverso.ArrayTableHandler:new(3, value):get())
    assert.same({ 0.5, 0.5 }, multiverso.ArrayTableHandler:new(2, 0.5):get())
  end)

  it('includes all adds after a barrier', function()
    local workers = multiverso.num_workers()
    local table = multiverso.ArrayTableHandler:new(4, { 1, 1, 1, 1 })
    for step = 1, 10 do
      table:add(list_of(4, function(i) return i * step end), step % 2 == 0)
    end
    multiverso.barrier()
    assert.same(list_of(4, function(i) return 1 + 55 * i * workers end), table:get())
    multiverso.barrier()
  end)

  it('accepts ffi arrays and pointers, and fills them in place', function()
    local table = multiverso.ArrayTableHandler:new(3, { 1, 2, 3 })
    local delta, out = ffi.new('float[3]', 1, 0, -1), ffi.new('float[?]', 4, 7)
    table:add(delta)
    table:add(ffi.cast('const float*', delta))
    multiverso.barrier()
    assert.equal(out + 0, table:get(out + 0))
    local n = 2 * multiverso.num_workers()
    assert.same({ 1 + n, 2, 3 - n, 7 }, { out[0], out[1], out[2], out[3] })
    multiverso.barrier()
  end)

  it('counts each call of all workers once, and swaps only the expected value', function()
    for _, dtype in ipairs { 'float64', 'int64' } do
      local counter = multiverso.ArrayTableHandler:new(2, 0, { dtype = dtype })
      local last = -1
      for _ = 1, 20 do
        local value = counter:fetch_add(1)
        assert.is_true(value > last)
        last = value
      end
      multiverso.barrier()
      assert.same({ 0, 20 * multiverso.num_workers() }, counter:get())
      assert.equal(0, counter:compare_swap(0, 1, 7))
      local matrix = multiverso.MatrixTableHandler:new(2, 2)
      if multiverso.is_master_worker() then
        assert.equal(0, matrix:fetch_add(1, 0, 5))
        assert.equal(5, matrix:compare_swap(1, 0, 5, 6))
      end
      multiverso.barrier()
      assert.same({ { 0, 0 }, { 6, 0 } }, matrix:get())
    end
    assert.has_error(function() multiverso.ArrayTableHandler:new(2):fetch_add(2) end)
    multiverso.barrier()
  end)

  it('returns the same values to all workers with get(out, true)', function()
    local table = multiverso.ArrayTableHandler:new(1)
    table:add({ 1 })
    assert.same({ multiverso.num_workers() }, table:get(nil, true))
  end)

  it('peeks without the other workers', function()
    local array = multiverso.ArrayTableHandler:new(2, { 1, 2 })
    local matrix = multiverso.MatrixTableHandler:new(2, 1, { 3, 4 })
    local keyed = multiverso.HashTableHandler:new(1, 10)
    if multiverso.is_master_worker() then
      assert.same({ 1, 2 }, array:peek())
      assert.same({ { 3 }, { 4 } }, matrix:peek())
      assert.same({ { 4 } }, matrix:peek({ 1 }))
      assert.same({ { 0 } }, keyed:peek({ 5 }))
    end
    multiverso.barrier()
    assert.equal(0, keyed:count())
    multiverso.barrier()
  end)

  it('takes and returns integers above 2^53 as int64_t', function()
    local large = 9007199254740993LL -- 2^53 + 1
    local table = multiverso.ArrayTableHandler:new(2, large, { dtype = 'int64' })
    if not has_torch then assert.is_true(table:get()[1] == large) end
    multiverso.barrier()
    if multiverso.is_master_worker() then
      assert.is_true(table:compare_swap(0, large, large + 1) == large)
      assert.is_true(table:fetch_add(0, -large) == large + 1)
      assert.equal(1, table:fetch_add(0))
    end
    multiverso.barrier()
  end)

  it('refuses a name that a checkpoint would cut', function()
    local fits = ('x'):rep(63)
    multiverso.ArrayTableHandler:new(2, 0, { name = fits })
    for _, name in ipairs { fits .. 'x', 'a\0b' } do
      assert.has_error(function() multiverso.ArrayTableHandler:new(2, 0, { name = name }) end)
    end
  end)

  for _, dtype in ipairs { 'float32', 'float64', 'int32', 'int64' } do
    it('supports ' .. dtype, function()
      local table = multiverso.ArrayTableHandler:new(2, { 1, -2 }, { dtype = dtype, name = 'w' })
      table:add({ 2 ^ 20, 1 })
      multiverso.barrier()
      local workers = multiverso.num_workers()
      assert.same({ 1 + 2 ^ 20 * workers, workers - 2 }, table:get())
      multiverso.barrier()
    end)
  end
end)

describe('a matrix table', function()
  before_each(function() multiverso.init() end)
  after_each(function() multiverso.shutdown() end)

  it('returns rows by id', function()
    local matrix = multiverso.MatrixTableHandler:new(2, 3, { { 1, 2, 3 }, { 4, 5, 6 } })
    assert.same({ { 1, 2, 3 }, { 4, 5, 6 } }, matrix:get())
    assert.same({ { 4, 5, 6 }, { 1, 2, 3 }, { 4, 5, 6 } }, matrix:get({ 1, 0, 1 }))
    assert.same({}, matrix:get({}))
    assert.same({ { 1, 2, 3 } }, matrix:get(ffi.new('int64_t[1]', 0)))
    assert.same({ { 4, 5, 6 } }, matrix:get(ffi.new('int32_t[1]', 1)))
  end)

  it("starts with the master's values, also if its constructor is spelled New", function()
    local value = multiverso.is_master_worker() and { 1, 2, 3, 4 } or { 9, 9, 9, 9 }
    for _, name in ipairs { 'new', 'New' } do
      local matrix = multiverso.MatrixTableHandler[name](multiverso.MatrixTableHandler, 2, 2, value)
      assert.same({ { 1, 2 }, { 3, 4 } }, matrix:get())
    end
  end)

  it('adds whole matrices, flat or by rows', function()
    local matrix = multiverso.MatrixTableHandler:new(2, 2)
    matrix:add({ 1, 2, 3, 4 })
    matrix:add({ { 1, 2 }, { 3, 4 } })
    matrix:add(ffi.new('float[2][2]', { { 1, 2 }, { 3, 4 } }))
    multiverso.barrier()
    local n = 3 * multiverso.num_workers()
    assert.same({ { n, 2 * n }, { 3 * n, 4 * n } }, matrix:get())
    multiverso.barrier()
  end)

  it('adds only the given rows, and a repeated row twice', function()
    local workers = multiverso.num_workers()
    local rows = 10 * workers
    local matrix = multiverso.MatrixTableHandler:new(rows, 2)
    local mine = 10 * multiverso.worker_id() + 3
    matrix:add({ { 1, 2 }, { 10, 20 }, { 1, 1 } }, { mine, mine, 0 }, true)
    matrix:add({}, {})
    multiverso.barrier()
    local all = matrix:get()
    for row = 0, rows - 1 do
      local expected = row % 10 == 3 and { 11, 22 } or row == 0 and { workers, workers } or { 0, 0 }
      assert.same(expected, all[row + 1])
    end
    multiverso.barrier()
  end)

  it('fills rows into an array', function()
    local matrix = multiverso.MatrixTableHandler:new(3, 2, { 1, 2, 3, 4, 5, 6 })
    local out = ffi.new('float[4]')
    assert.equal(out, matrix:get({ 2, 0 }, out))
    assert.same({ 5, 6, 1, 2 }, { out[0], out[1], out[2], out[3] })
  end)
end)

describe('a hash table', function()
  before_each(function() multiverso.init() end)
  after_each(function() multiverso.shutdown() end)

  it('gives rows to keys that are added or got', function()
    local workers = multiverso.num_workers()
    local table = multiverso.HashTableHandler:new(2, 1000)
    local keys = ffi.new('int64_t[2]', { -7, 9007199254740993LL })
    table:add({ { 1, 2 }, { 3, 4 } }, keys)
    multiverso.barrier()
    assert.same({ { workers, 2 * workers }, { 3 * workers, 4 * workers } }, table:get(keys))
    assert.same({ { 0, 0 } }, table:get({ 5 }, nil, false))
    assert.equal(2, table:count())
    multiverso.barrier()
    table:get({ 5 })
    table:remove({ -7, 99 })
    multiverso.barrier()
    assert.equal(2, table:count())
    multiverso.barrier()
  end)
end)

describe('sync mode', function()
  it('includes exactly j adds of every worker after the j-th add', function()
    multiverso.init(true)
    local workers = multiverso.num_workers()
    local table = multiverso.ArrayTableHandler:new(3)
    for round = 1, 5 do
      table:add({ 1, round, multiverso.worker_id() })
      assert.same({ round * workers, round * (round + 1) / 2 * workers,
                    round * workers * (workers - 1) / 2 }, table:get())
    end
    multiverso.shutdown()
  end)

  it('continues without a worker that has finished', function()
    multiverso.init(true)
    local table = multiverso.ArrayTableHandler:new(1)
    for _ = 1, 2 + multiverso.worker_id() do
      table:add({ 1 })
      table:get()
    end
    multiverso.finish()
    multiverso.barrier()
    local workers = multiverso.num_workers()
    assert.same({ 2 * workers + workers * (workers - 1) / 2 }, table:get())
    multiverso.shutdown()
  end)

  it('includes all adds after a barrier with bounded staleness', function()
    multiverso.init(false, { staleness = 2 })
    local table = multiverso.ArrayTableHandler:new(1)
    for _ = 1, 20 do table:add({ 1 }) end
    multiverso.barrier()
    assert.same({ 20 * multiverso.num_workers() }, table:get())
    multiverso.shutdown()
  end)
end)
