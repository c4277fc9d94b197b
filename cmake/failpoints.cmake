# Adds the target multiverso_failpoints, which the default build leaves out: the library with
# failpoints (src/base/failpoint.h), for tests. It links first the sources that have failpoints, in
# themselves or in a header that they include, and then all objects of the library.
file(GLOB MULTIVERSO_HEADERS CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/*/*.h)
list(FILTER MULTIVERSO_HEADERS EXCLUDE REGEX "/base/failpoint\\.h$")
set(MULTIVERSO_FAILPOINT_PATTERN "MV_FAILPOINT\\(")
foreach(header ${MULTIVERSO_HEADERS})
  file(STRINGS ${header} found LIMIT_COUNT 1 REGEX "MV_FAILPOINT\\(")
  if(found)
    file(RELATIVE_PATH header ${CMAKE_CURRENT_SOURCE_DIR}/src ${header})
    string(APPEND MULTIVERSO_FAILPOINT_PATTERN "|#include \"${header}\"")
  endif()
endforeach()
set(MULTIVERSO_FAILPOINT_SOURCES ${CMAKE_CURRENT_SOURCE_DIR}/src/base/failpoint.cc
                                 ${CMAKE_CURRENT_SOURCE_DIR}/src/base/failpoint_clock.cc)
foreach(source ${MULTIVERSO_SOURCES})
  file(STRINGS ${source} found LIMIT_COUNT 1 REGEX "${MULTIVERSO_FAILPOINT_PATTERN}")
  if(found)
    list(APPEND MULTIVERSO_FAILPOINT_SOURCES ${source})
  endif()
endforeach()
# In a unity build, the compiler could inline a function of these files into another file, and the
# linker could not replace it there.
set_source_files_properties(${MULTIVERSO_FAILPOINT_SOURCES}
                            PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
# Here they can be compiled together, as the files of a folder are in the release build, since all of
# this code comes first. That takes half the time; optimizing less, another fifth.
set(MULTIVERSO_FAILPOINT_UNITS)
foreach(source ${MULTIVERSO_FAILPOINT_SOURCES})
  get_filename_component(folder ${source} DIRECTORY)
  get_filename_component(folder ${folder} NAME)
  list(APPEND MULTIVERSO_FAILPOINT_UNITS ${folder})
  string(APPEND MULTIVERSO_FAILPOINTS_OF_${folder} "#include \"${source}\"\n")
endforeach()
list(REMOVE_DUPLICATES MULTIVERSO_FAILPOINT_UNITS)
set(MULTIVERSO_FAILPOINT_FILES)
foreach(folder ${MULTIVERSO_FAILPOINT_UNITS})
  set(unit ${CMAKE_CURRENT_BINARY_DIR}/failpoints/${folder}.cc)
  file(GENERATE OUTPUT ${unit} CONTENT "${MULTIVERSO_FAILPOINTS_OF_${folder}}")
  list(APPEND MULTIVERSO_FAILPOINT_FILES ${unit})
endforeach()
add_library(failpoint_objects OBJECT EXCLUDE_FROM_ALL ${MULTIVERSO_FAILPOINT_FILES})
set_target_properties(failpoint_objects PROPERTIES UNITY_BUILD OFF)
if(NOT MSVC)
  target_compile_options(failpoint_objects PRIVATE $<$<CONFIG:Release>:-O1>)
endif()
set_target_properties(failpoint_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_include_directories(failpoint_objects PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src
                                                      ${CMAKE_CURRENT_SOURCE_DIR}/src/include)
target_compile_definitions(failpoint_objects PRIVATE MULTIVERSO_BUILDING MULTIVERSO_FAILPOINTS)
target_link_libraries(failpoint_objects PRIVATE multiverso_options Threads::Threads)

add_library(multiverso_failpoints SHARED EXCLUDE_FROM_ALL $<TARGET_OBJECTS:failpoint_objects>
                                                          $<TARGET_OBJECTS:multiverso_core>)
# The linker uses the first definition of a symbol, which is that of failpoint_objects.
target_link_options(multiverso_failpoints PRIVATE -Wl,--allow-multiple-definition)
# The clock of src/base/failpoint_clock.cc replaces that of the C library.
foreach(function clock_gettime pthread_cond_clockwait nanosleep poll syscall
                 _ZNSt6chrono3_V212steady_clock3nowEv)
  target_link_options(multiverso_failpoints PRIVATE -Wl,--wrap=${function})
endforeach()
target_link_libraries(multiverso_failpoints PRIVATE multiverso_options
                                                    ${MULTIVERSO_SYSTEM_LIBRARIES})
set_target_properties(multiverso_failpoints PROPERTIES LINKER_LANGUAGE CXX)
