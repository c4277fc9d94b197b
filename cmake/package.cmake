# Installs the files with which CMake and pkg-config projects find Multiverso. All paths in them are
# relative, so that the installation can be moved.
include(CMakePackageConfigHelpers)

set(MULTIVERSO_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/multiverso
    CACHE STRING "Folder of the find_package files, below the prefix")
set(MULTIVERSO_PKGCONFIG_DIR ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    CACHE STRING "Folder of the pkg-config file, below the prefix")
mark_as_advanced(MULTIVERSO_CMAKE_DIR MULTIVERSO_PKGCONFIG_DIR)

install(EXPORT multiverso FILE multiverso-targets.cmake NAMESPACE multiverso::
        DESTINATION ${MULTIVERSO_CMAKE_DIR})
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/multiverso-config.cmake.in
  ${PROJECT_BINARY_DIR}/package/multiverso-config.cmake
  INSTALL_DESTINATION ${MULTIVERSO_CMAKE_DIR} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/multiverso-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/multiverso-config.cmake
              ${PROJECT_BINARY_DIR}/package/multiverso-config-version.cmake
        DESTINATION ${MULTIVERSO_CMAKE_DIR})

# Some distributions set absolute install folders, which are used as they are.
set(MULTIVERSO_PC_LIBDIR ${CMAKE_INSTALL_LIBDIR})
set(MULTIVERSO_PC_INCLUDEDIR ${CMAKE_INSTALL_INCLUDEDIR})
foreach(folder MULTIVERSO_PC_LIBDIR MULTIVERSO_PC_INCLUDEDIR)
  if(NOT IS_ABSOLUTE "${${folder}}")
    set(${folder} "\${prefix}/${${folder}}")
  endif()
endforeach()
if(IS_ABSOLUTE "${MULTIVERSO_PKGCONFIG_DIR}")
  file(RELATIVE_PATH MULTIVERSO_PC_TO_PREFIX "${MULTIVERSO_PKGCONFIG_DIR}"
       "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH MULTIVERSO_PC_TO_PREFIX "/prefix/${MULTIVERSO_PKGCONFIG_DIR}" "/prefix")
endif()
string(REGEX REPLACE "/$" "" MULTIVERSO_PC_TO_PREFIX "${MULTIVERSO_PC_TO_PREFIX}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/multiverso.pc.in
               ${PROJECT_BINARY_DIR}/package/multiverso.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/multiverso.pc DESTINATION ${MULTIVERSO_PKGCONFIG_DIR})
