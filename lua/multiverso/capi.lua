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

int32_t MV_Wait(void);
int32_t MV_Cancel(const char* reason);

typedef struct MV_SessionOptions {
  int64_t struct_size;
  int32_t mode;
  int32_t role;
  int32_t transport;
  int32_t on_loss;
  int64_t staleness;
  int64_t timeout_ms;
  int64_t wait_slice_ms;
  const void* mpi_comm;
  const char* mpi_path;
  int64_t peer_timeout_ms;
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
int32_t MV_SessionAggregate(MV_Session session, int32_t dtype, void* data, int64_t count);
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
  int32_t reserved;
  double hyper[16];
  const char* name;
  const void* init_value;
} MV_TableOptions;

int32_t MV_TableOptionsInit(MV_TableOptions* options);
int32_t MV_TableCreate(MV_Session session, const MV_TableOptions* options, MV_Table* table);
int32_t MV_TableFree(MV_Table table);
int32_t MV_TableGet(MV_Table table, void* out, int64_t count, int32_t flags);
int32_t MV_TableAdd(MV_Table table, const void* delta, int64_t count);
int32_t MV_TableGetRows(MV_Table table, const int64_t* row_ids, int64_t num_ids, void* out,
                        int64_t count, int32_t flags);
int32_t MV_TableAddRows(MV_Table table, const int64_t* row_ids, int64_t num_ids,
                        const void* delta, int64_t count);
]]
if not pcall(ffi.typeof, 'MV_SessionOptions') then ffi.cdef(DECLARATIONS) end

local capi = {
  MV_ABI_VERSION = 3,
  MV_OK = 0,
  MV_PENDING = 1,
  MV_MODE_ASYNC = 0,
  MV_MODE_SYNC = 1,
  MV_MODE_STALE = 2,
  MV_ROLE_ALL = 0,
  MV_ROLE_WORKER = 1,
  MV_ROLE_SERVER = 2,
  MV_TRANSPORT_SINGLE = 0,
  MV_TRANSPORT_MPI = 1,
  MV_TABLE_ARRAY = 0,
  MV_TABLE_MATRIX = 1,
  MV_FLOAT32 = 0,
  MV_FLOAT64 = 1,
  MV_INT32 = 2,
  MV_INT64 = 3,
  MV_COLLECTIVE = 1,
}

local SUFFIX = ({ OSX = '.dylib', Windows = '.dll' })[ffi.os] or '.so'

--- Returns the paths of the library to try, in order. MULTIVERSO_LIBRARY is the only one if set.
local function library_paths()
  local given = os.getenv('MULTIVERSO_LIBRARY')
  if given and given ~= '' then return { given } end
  local paths = {}
  -- The folders of LuaRocks' C modules come first, then the source tree that contains this file.
  for pattern in package.cpath:gmatch('[^;]+') do
    if pattern:find('?', 1, true) then
      paths[#paths + 1] = pattern:gsub('%?', 'libmultiverso'):gsub('%.[^./]+$', SUFFIX)
    end
  end
  local root = debug.getinfo(1, 'S').source:match('^@(.*)lua/multiverso/capi%.lua$')
  if root then paths[#paths + 1] = root .. 'multiverso/_lib/libmultiverso' .. SUFFIX end
  local existing = {}
  for _, path in ipairs(paths) do
    local file = io.open(path, 'rb')
    if file then
      file:close()
      existing[#existing + 1] = path
    end
  end
  existing[#existing + 1] = 'multiverso' -- the dynamic linker looks for libmultiverso
  return existing
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
  local errors = {}
  for _, path in ipairs(library_paths()) do
    local ok, loaded = pcall(ffi.load, path)
    if ok then
      pin(path == 'multiverso' and 'libmultiverso' .. SUFFIX or path)
      return loaded, path
    end
    errors[#errors + 1] = tostring(loaded)
  end
  error('cannot load the Multiverso library: ' .. table.concat(errors, '; ')
    .. ". Install it with 'cmake --install' or 'luarocks make', or set MULTIVERSO_LIBRARY", 0)
end

local lib, path = load()
local abi = lib.MV_AbiVersion()
if abi ~= capi.MV_ABI_VERSION then
  error(('library %s: expected ABI %d, received %d: reinstall it and the Lua files'):format(
    path, capi.MV_ABI_VERSION, abi), 0)
end
capi.lib = lib

local PENDING = capi.MV_PENDING

--- Waits until a pending call is complete, and returns its status. It must not be compiled, because
-- compiled code ignores the hook by which LuaJIT reports Ctrl-C.
local function wait()
  local status
  repeat
    status = lib.MV_Wait()
  until status ~= PENDING
  return status
end
jit.off(wait)

local function run(f, ...)
  local status = f(...)
  if status == PENDING then status = wait() end
  return status
end

--- Calls a function of the library and waits until it is complete; raises a Lua error on failure.
-- An interrupted wait (Ctrl-C, a hook) aborts the call on all participating ranks.
function capi.call(f, ...)
  local ok, status = pcall(run, f, ...)
  if not ok then
    lib.MV_Cancel(tostring(status))
    error(status, 0)
  end
  if status ~= 0 then
    error(ffi.string(lib.MV_StatusName(status)) .. ': ' .. ffi.string(lib.MV_LastError()), 0)
  end
end

--- Raises an error for an invalid argument, in the form of the library's own errors.
function capi.reject(status, argument, expected, received)
  error(('%s: %s: expected %s, received %s'):format(status, argument, expected, received), 0)
end

return capi
