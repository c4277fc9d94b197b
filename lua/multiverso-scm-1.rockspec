-- Run at the top of the source tree: luarocks --lua-version 5.1 make lua/multiverso-scm-1.rockspec
rockspec_format = '3.0'
package = 'multiverso'
version = 'scm-1'
source = { url = '.' }
description = {
  summary = 'A parameter server for MPI jobs: tables that every worker adds to and gets from',
  license = 'MIT',
}
supported_platforms = { 'linux' }
dependencies = { 'lua == 5.1' } -- LuaJIT, because the binding uses its ffi
build_dependencies = {}
build = {
  type = 'cmake',
  variables = {
    BUILD_TESTING = 'OFF',
    CMAKE_BUILD_TYPE = 'Release',
    CMAKE_INSTALL_PREFIX = '$(PREFIX)',
    CMAKE_INSTALL_LIBDIR = '$(LIBDIR)',
    MULTIVERSO_INSTALL_PACKAGE = 'OFF', -- no C program is built with this prefix
  },
  install = {
    lua = {
      ['multiverso.init'] = 'lua/multiverso/init.lua',
      ['multiverso.capi'] = 'lua/multiverso/capi.lua',
      ['multiverso.elements'] = 'lua/multiverso/elements.lua',
      ['multiverso.session'] = 'lua/multiverso/session.lua',
      ['multiverso.tables'] = 'lua/multiverso/tables.lua',
    },
  },
  copy_directories = {},
}
