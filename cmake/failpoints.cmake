# Adds the target multiverso_failpoints: the library with failpoints (src/base/failpoint.h), for
# tests. It links the sources that have failpoints first, then all objects of the library. The
# default build leaves it out.
set(MULTIVERSO_FAILING base/failpoint checkpoint/file_system_linux shard/shard)

set(MULTIVERSO_FAILING_SOURCES)
foreach(source ${MULTIVERSO_FAILING})
  list(APPEND MULTIVERSO_FAILING_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/src/${source}.cc)
endforeach()
add_library(multiverso_failing OBJECT EXCLUDE_FROM_ALL ${MULTIVERSO_FAILING_SOURCES})
set_target_properties(multiverso_failing PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(multiverso_failing PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src
                                                      ${CMAKE_CURRENT_SOURCE_DIR}/src/include)
target_compile_definitions(multiverso_failing PRIVATE MULTIVERSO_BUILDING MULTIVERSO_FAILPOINTS)
target_link_libraries(multiverso_failing PRIVATE multiverso_options Threads::Threads)

add_library(multiverso_failpoints SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:multiverso_failing>
                                                          $<TARGET_OBJECTS:multiverso_core>)
# The linker uses the first definition of a symbol, which is that of multiverso_failing.
target_link_options(multiverso_failpoints PRIVATE -Wl,--allow-multiple-definition)
target_link_libraries(multiverso_failpoints PRIVATE multiverso_options
                                                    ${MULTIVERSO_SYSTEM_LIBRARIES})
set_target_properties(multiverso_failpoints PROPERTIES LINKER_LANGUAGE CXX)
