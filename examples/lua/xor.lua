-- The 2-20-1 XOR network of the Torch tutorial, with tanh and mean squared error, in plain LuaJIT.
--
--   luajit examples/lua/xor.lua
--   mpirun -np 4 luajit examples/lua/xor.lua

local ffi = require 'ffi'
local multiverso = require 'multiverso' -- MULTIVERSO: shares the parameters between processes

local INPUTS, HIDDEN, STEPS, RATE = 2, 20, 20000, 0.05
local SIZE = HIDDEN * (INPUTS + 1) + HIDDEN + 1
-- Offsets of the weights and biases in the parameters.
local W1, B1, W2, B2 = 0, HIDDEN * INPUTS, HIDDEN * (INPUTS + 1), HIDDEN * (INPUTS + 2)

local function tanh(x)
  local e = math.exp(2 * math.max(-20, math.min(20, x))) -- beyond 20, tanh is 1 to double precision
  return (e - 1) / (e + 1)
end

--- Returns the network's output for a point; `hidden` receives the outputs of the hidden units.
local function forward(w, a, b, hidden)
  local sum = w[B2]
  for i = 0, HIDDEN - 1 do
    hidden[i] = tanh(w[W1 + 2 * i] * a + w[W1 + 2 * i + 1] * b + w[B1 + i])
    sum = sum + w[W2 + i] * hidden[i]
  end
  return sum
end

--- Writes the step of gradient descent for one point to `delta`; returns the squared error.
local function update(w, a, b, target, hidden, delta, rate)
  local difference = forward(w, a, b, hidden) - target
  local step = -rate * 2 * difference
  for i = 0, HIDDEN - 1 do
    local inner = step * w[W2 + i] * (1 - hidden[i] * hidden[i]) -- the step of the unit's bias
    delta[W2 + i] = step * hidden[i]
    delta[W1 + 2 * i], delta[W1 + 2 * i + 1], delta[B1 + i] = inner * a, inner * b, inner
  end
  delta[B2] = step
  return difference * difference
end

multiverso.init() -- MULTIVERSO: joins the other processes of the job
local num_workers, worker = multiverso.num_workers(), multiverso.worker_id()

math.randomseed(1)
local initial = {}
for i = 1, SIZE do initial[i] = (math.random() - 0.5) end
-- MULTIVERSO: one table holds all parameters and starts with the master's initial values.
local parameters = multiverso.ArrayTableHandler:new(SIZE, initial)

math.randomseed(100 + worker) -- MULTIVERSO: each worker draws its own points
local hidden, delta, w = ffi.new('float[?]', HIDDEN), ffi.new('float[?]', SIZE),
  ffi.new('float[?]', SIZE)
parameters:get(w)
for _ = 1, STEPS / num_workers do
  local a, b = 2 * math.random() - 1, 2 * math.random() - 1
  update(w, a, b, a * b > 0 and -1 or 1, hidden, delta, RATE)
  parameters:add(delta) -- MULTIVERSO: instead of w = w + delta
  parameters:get(w) -- MULTIVERSO: includes what the other workers have added
end

multiverso.barrier() -- MULTIVERSO: afterwards the table contains every add
if multiverso.is_master_worker() then
  parameters:get(w)
  local num_right = 0
  for _, point in ipairs { { 0.5, 0.5 }, { 0.5, -0.5 }, { -0.5, 0.5 }, { -0.5, -0.5 } } do
    local output = forward(w, point[1], point[2], hidden)
    local expected = point[1] * point[2] > 0 and -1 or 1
    if output * expected > 0 then num_right = num_right + 1 end
    print(('xor(%4.1f, %4.1f) = %5.2f'):format(point[1], point[2], output))
  end
  print(('%d worker(s): %d of 4 right'):format(num_workers, num_right))
end
multiverso.shutdown() -- MULTIVERSO: waits for all workers and closes the session
