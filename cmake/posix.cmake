# Adds the target multiverso_posix: the library with the files for POSIX systems such as macOS, on
# Linux, where it can be tested. It has the objects of the library, but those of the *_posix.cc and
# *_other.cc files instead of those of the *_linux.cc files. The target posix has the C++ tests, too.
# `make test-posix` builds and runs them; the target all does not contain them.
add_custom_target(posix)
file(GLOB MULTIVERSO_POSIX_SOURCES CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/src/*/*_posix.cc
     ${CMAKE_CURRENT_SOURCE_DIR}/src/*/*_other.cc)
add_library(posix_objects OBJECT EXCLUDE_FROM_ALL ${MULTIVERSO_POSIX_SOURCES})
set_target_properties(posix_objects PROPERTIES POSITION_INDEPENDENT_CODE ON UNITY_BUILD OFF)
target_include_directories(posix_objects PRIVATE ${CMAKE_CURRENT_SOURCE_DIR}/src
                                                 ${CMAKE_CURRENT_SOURCE_DIR}/src/include)
target_link_libraries(posix_objects PRIVATE multiverso_options Threads::Threads)
set(MULTIVERSO_POSIX_OBJECTS
    $<TARGET_OBJECTS:posix_objects>
    $<FILTER:$<TARGET_OBJECTS:multiverso_core>,EXCLUDE,_linux\\.cc\\.o$>)

add_library(multiverso_posix SHARED EXCLUDE_FROM_ALL ${MULTIVERSO_POSIX_OBJECTS})
target_link_libraries(multiverso_posix PRIVATE multiverso_options ${MULTIVERSO_SYSTEM_LIBRARIES})
set_target_properties(multiverso_posix PROPERTIES LINKER_LANGUAGE CXX)
add_dependencies(posix multiverso_posix)

# Adds posix_TEST, which runs the C++ test of a source file with that library, if its folder depends
# on the system. Only linking it costs time, since the test itself is compiled for both. ctest runs
# it with the option -C posix.
function(multiverso_add_posix_test tests test source)
  if(NOT test MATCHES "^(base_(process|socket)|(group|liveness|memory|node|session|transport)_)")
    return()
  endif()
  if(NOT TARGET posix_${tests})
    add_executable(posix_${tests} EXCLUDE_FROM_ALL
                   $<TARGET_OBJECTS:${tests}> $<TARGET_OBJECTS:test_doubles>
                   ${MULTIVERSO_POSIX_OBJECTS})
    add_dependencies(posix posix_${tests})
    set_target_properties(posix_${tests} PROPERTIES LINKER_LANGUAGE CXX)
    target_link_libraries(posix_${tests} PRIVATE multiverso_options GTest::gtest
                                                 ${MULTIVERSO_SYSTEM_LIBRARIES})
  endif()
  add_test(NAME posix_${test} CONFIGURATIONS posix COMMAND posix_${tests} ${source})
  set_tests_properties(posix_${test} PROPERTIES TIMEOUT ${MULTIVERSO_TEST_TIMEOUT})
endfunction()
