# Adds the target multiverso_failpoints, which the default build leaves out: the library with
# failpoints (src/base/failpoint.h), for tests. It links first the sources that have failpoints, in
# themselves or in a header, and then all objects of the library.
set(MULTIVERSO_FAILPOINT_NAMES base/failpoint checkpoint/disk_unix checkpoint/file_system
                               group/control_channel group/group group/leader_exchange
                               session/publishing shard/shard_copies shard/shard_encoded
                               shard/shard_requests sum/piece_link table/publication
                               table/shard_service table/table_creation)

set(MULTIVERSO_FAILPOINT_SOURCES)
foreach(source ${MULTIVERSO_FAILPOINT_NAMES})
  list(APPEND MULTIVERSO_FAILPOINT_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/src/${source}.cc)
endforeach()
# In a unity build, the compiler could inline a function of these files into another file, and the
# linker could not replace it there.
set_source_files_properties(${MULTIVERSO_FAILPOINT_SOURCES}
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
add_library(failpoint_objects OBJECT EXCLUDE_FROM_ALL ${MULTIVERSO_FAILPOINT_SOURCES})
set_target_properties(failpoint_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(failpoint_objects PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src
                                                      ${CMAKE_CURRENT_SOURCE_DIR}/src/include)
target_compile_definitions(failpoint_objects PRIVATE MULTIVERSO_BUILDING MULTIVERSO_FAILPOINTS)
target_link_libraries(failpoint_objects PRIVATE multiverso_options Threads::Threads)

add_library(multiverso_failpoints SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:failpoint_objects>
                                                          $<TARGET_OBJECTS:multiverso_core>)
# The linker uses the first definition of a symbol, which is that of failpoint_objects.
target_link_options(multiverso_failpoints PRIVATE -Wl,--allow-multiple-definition)
target_link_libraries(multiverso_failpoints PRIVATE multiverso_options
                                                    ${MULTIVERSO_SYSTEM_LIBRARIES})
set_target_properties(multiverso_failpoints PROPERTIES LINKER_LANGUAGE CXX)
