--- Loads the C library, declares its functions, and converts its statuses to Lua errors.
--
-- A test compares the declarations with src/include/multiverso/c_api.h.

local ffi = require 'ffi'

-- ffi.cdef may see these declarations only once in a process, even if this file is loaded again.
local DECLARATIONS = [[
typedef struct MV_SessionHandle_* MV_Session;
typedef struct MV_TableHandle_* MV_Table;

int32_t MV_AbiVersion(void);
const char* MV_VersionString(void);
const char* MV_BuildInfo(void);
const char* MV_StatusName(int32_t status);
const char* MV_LastError(void);

typedef const char* (*MV_InterruptCheck)(void* argument);
int32_t MV_SetInterrupt(MV_InterruptCheck check, void* argument);
const char* MV_CheckLuaHook(void* argument);

int32_t MV_ClaimRank(int32_t opens, int32_t* launchers);

typedef struct MV_SessionOptions {
  int64_t struct_size;
  int32_t mode;
  int32_t role;
  int32_t transport;
  int32_t on_loss;
  int64_t staleness;
  int64_t timeout_ms;
  const void* mpi_comm;
  const char* mpi_path;
  int64_t peer_timeout_ms;
  const char* job_name;
  int32_t job_rank;
  int32_t job_size;
  const char* name;
  int32_t elastic;
  int32_t max_workers;
  const char* join;
  int32_t on_term;
  int32_t saves_at_end;
  int64_t start_timeout_ms;
} MV_SessionOptions;

typedef struct MV_SessionDescription {
  int64_t struct_size;
  int64_t rank;
  int64_t size;
  int64_t worker_id;
  int64_t server_id;
  int64_t num_workers;
  int64_t num_servers;
  int64_t master_rank;
  int64_t node;
  int64_t num_nodes;
  int64_t local_rank;
  int64_t local_size;
} MV_SessionDescription;

int32_t MV_SessionOptionsInit(MV_SessionOptions* options);
int32_t MV_SessionOpen(const MV_SessionOptions* options, MV_Session* session);
int32_t MV_SessionDescribe(MV_Session session, MV_SessionDescription* description);
int32_t MV_SessionBarrier(MV_Session session);
int32_t MV_SessionAggregate(MV_Session session, int32_t op, int32_t dtype, void* data,
                            int64_t count);
int32_t MV_SessionFinish(MV_Session session);
int32_t MV_SessionClose(MV_Session session);
int32_t MV_SessionLeave(MV_Session session, const char* reason);

typedef struct MV_TableOptions {
  int64_t struct_size;
  int32_t kind;
  int32_t dtype;
  int64_t num_row;
  int64_t num_col;
  int32_t updater;
  int32_t wire;
  double hyper[16];
  const char* name;
  const void* init_value;
  int32_t initializer;
  int32_t numa;
  int64_t seed;
  double initializer_values[2];
  int64_t max_bytes;
  int64_t capacity;
  int32_t evict;
  int32_t admit;
  const char* backing;
} MV_TableOptions;

int32_t MV_TableOptionsInit(MV_TableOptions* options);
int32_t MV_TableCreate(MV_Session session, const MV_TableOptions* options, MV_Table* table);
int32_t MV_TableFree(MV_Table table);
int32_t MV_TableGet(MV_Table table, void* out, int64_t count, int32_t flags);
int32_t MV_TableAdd(MV_Table table, const void* delta, int64_t count);
int32_t MV_TableGetRows(MV_Table table, const int64_t* row_ids, int64_t num_ids, void* out,
                        int64_t count, int32_t flags);
int32_t MV_TableRun(MV_Table table, const char* operation, const int64_t* row_ids,
                    int64_t num_ids, const void* delta, void* out, int64_t count, int32_t flags);
int32_t MV_TableKeyCounts(MV_Table table, int64_t* counts);
int32_t MV_TableAddRows(MV_Table table, const int64_t* row_ids, int64_t num_ids,
                        const void* delta, int64_t count);
int32_t MV_TableFetchAdd(MV_Table table, int64_t row, int64_t col, const void* delta,
                         void* before);
int32_t MV_TableCompareSwap(MV_Table table, int64_t row, int64_t col, const void* expected,
                            const void* desired, void* before);
]]
if not pcall(ffi.typeof, 'MV_SessionOptions') then
  ffi.cdef(DECLARATIONS)
  ffi.cdef 'void* lua_gethook(void* state);'  -- a function of LuaJIT
end

local capi = {
  MV_ABI_VERSION = 7,
  MV_OK = 0,
  MV_MODE_ASYNC = 0,
  MV_MODE_SYNC = 1,
  MV_MODE_STALE = 2,
  MV_ROLE_ALL = 0,
  MV_ROLE_WORKER = 1,
  MV_ROLE_SERVER = 2,
  MV_NO_LIMIT = -1,
  MV_TRANSPORT_SINGLE = 0,
  MV_TRANSPORT_MPI = 1,
  MV_TRANSPORT_LOCAL = 2,
  MV_LAUNCHER_MULTIVERSO = 1,
  MV_LAUNCHER_MPI = 2,
  MV_TABLE_ARRAY = 0,
  MV_TABLE_MATRIX = 1,
  MV_TABLE_HASH = 2,
  MV_KEY_COUNTS = 7,
  MV_INITIALIZER_ZEROS = 1,
  MV_FLOAT32 = 0,
  MV_FLOAT64 = 1,
  MV_INT32 = 2,
  MV_INT64 = 3,
  MV_OP_SUM = 0,
  MV_COLLECTIVE = 1,
  MV_PEEK = 2,
}

local FILE = ({ OSX = 'libmultiverso.dylib', Windows = 'Multiverso.dll' })[ffi.os]
  or 'libmultiverso.so'

local function is_file(path)
  local file = io.open(path, 'rb')
  if file then file:close() end
  return file ~= nil
end

--- Returns the library in the Python package that is installed under this prefix, or nil.
-- Lua cannot list folders, so this tries each version of Python from 3.40 down to 3.11.
local function library_of_python(prefix)
  for minor = 40, 11, -1 do
    for _, pattern in ipairs {
      '%s/lib/python3.%d/site-packages/multiverso/_lib/%s',
      '%s/lib64/python3.%d/site-packages/multiverso/_lib/%s',
      '%s/lib/python3.%d/dist-packages/multiverso/_lib/%s',
    } do
      local path = pattern:format(prefix, minor, FILE)
      if is_file(path) then return path end
    end
  end
end

--- Yields the places of the library in order: a description and, unless nothing is there, a path.
-- MULTIVERSO_LIBRARY is the only place if it is set.
local function places()
  local yield = coroutine.yield
  local given = os.getenv('MULTIVERSO_LIBRARY')
  if given and given ~= '' then
    yield('MULTIVERSO_LIBRARY', given)
    return
  end
  -- The folders of LuaRocks' C modules come first, then the source tree that contains this file.
  for pattern in package.cpath:gmatch('[^;]+') do
    local folder = pattern:match('^(.*)%?')
    if folder then yield(folder .. FILE, is_file(folder .. FILE) and folder .. FILE) end
  end
  local root = debug.getinfo(1, 'S').source:match('^@(.*)lua/multiverso/capi%.lua$')
  if root then
    local path = root .. 'multiverso/_lib/' .. FILE
    yield(path, is_file(path) and path)
  end
  yield('the dynamic linker', FILE)
  for folder in (os.getenv('PATH') or ''):gmatch('[^:]+') do
    local prefix = folder:match('^(/.*)/bin/*$')
    if prefix then
      yield(prefix .. '/lib/python3.*/*-packages/multiverso/_lib/' .. FILE,
        library_of_python(prefix))
    end
  end
end

--- Keeps the library loaded: its exit handlers leave sessions and finalize MPI after Lua has closed
-- its libraries.
local function pin(path)
  if ffi.os ~= 'Linux' then return end
  pcall(ffi.cdef, 'void* dlopen(const char*, int);')
  local RTLD_NOW, RTLD_NOLOAD, RTLD_NODELETE = 0x2, 0x4, 0x1000 -- the values of glibc and musl
  ffi.C.dlopen(path, RTLD_NOW + RTLD_NOLOAD + RTLD_NODELETE)
end

local function load()
  local reasons = {}
  for place, path in coroutine.wrap(places) do
    local ok, loaded = false, 'not found'
    if path then ok, loaded = pcall(ffi.load, path) end
    if ok then
      pin(path)
      return loaded, path
    end
    reasons[#reasons + 1] = ('  %s: %s\n'):format(place, tostring(loaded))
  end
  error('cannot load the Multiverso library: expected it at one of these places, received\n'
    .. table.concat(reasons)
    .. 'If the Python package is installed, use its library:\n'
    .. "  export MULTIVERSO_LIBRARY=$(python -c 'import multiverso; print(multiverso.__path__[0])')"
    .. '/_lib/' .. FILE .. '\n'
    .. "Otherwise install the library with 'cmake --install' or 'luarocks make'.", 0)
end

local lib, path = load()
local abi = lib.MV_AbiVersion()
if abi ~= capi.MV_ABI_VERSION then
  error(('library %s: expected ABI %d, received %d: reinstall it and the Lua files'):format(
    path, capi.MV_ABI_VERSION, abi), 0)
end
capi.lib = lib

-- Ctrl-C sets a hook, by which a waiting call notices it. Any coroutine has the program's hook.
capi.coroutine = coroutine.create(function() end)
local watched = ffi.new('void*[3]')
local is_watched, get_hook = pcall(function() return ffi.C.lua_gethook end)
if is_watched then
  watched[0] = ffi.cast('void*', get_hook)
  watched[1] = ffi.cast('void*', tonumber(tostring(capi.coroutine):match('0x%x+')))
  lib.MV_SetInterrupt(lib.MV_CheckLuaHook, watched)
end

--- Calls a function of the library; raises a Lua error on failure. Ctrl-C ends a wait, and aborts
-- the call on all participating ranks. It must not be compiled, because compiled code ignores the
-- hook, which raises the error here.
function capi.call(f, ...)
  if is_watched then watched[2] = get_hook(watched[1]) end
  local status = f(...)
  if status ~= 0 then
    error(ffi.string(lib.MV_StatusName(status)) .. ': ' .. ffi.string(lib.MV_LastError()), 0)
  end
end
jit.off(capi.call)

--- Raises an error for an invalid argument, in the form of the library's own errors.
function capi.reject(status, argument, expected, received)
  error(('%s: %s: expected %s, received %s'):format(status, argument, expected, received), 0)
end

return capi
