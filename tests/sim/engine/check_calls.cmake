# cmake -D NM=nm -D "LIBRARY=objects" -D "ENGINE=objects" -D LIST=harmless_calls.txt -P check_calls.cmake
#
# Fails if the objects of the library call a function that is neither theirs, nor the engine's, nor in
# the list. Without this check, a new call could block the simulation, or make its runs differ.
list(FILTER LIBRARY INCLUDE REGEX "\\.o$") # and not a precompiled header
execute_process(COMMAND ${NM} --undefined-only -P ${LIBRARY} OUTPUT_VARIABLE called
                COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${NM} --defined-only -P ${LIBRARY} ${ENGINE} OUTPUT_VARIABLE defined
                COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "[^\n ]+ [A-Za-z] ?[^\n]*" called "${called}")
string(REGEX MATCHALL "[^\n ]+ [A-Za-z] [^\n]*" defined "${defined}")
list(TRANSFORM called REPLACE " .*" "")
list(TRANSFORM defined REPLACE " .*" "")
# Names of C++ and of the sanitizers begin like this.
list(FILTER called EXCLUDE REGEX "^(_Z|__asan_|__ubsan_|__tsan_|__sanitizer_)")
list(REMOVE_DUPLICATES called)
list(REMOVE_ITEM called ${defined})
file(STRINGS ${LIST} harmless REGEX "^[^#]")
foreach(name ${harmless})
  list(FILTER called EXCLUDE REGEX "^${name}$")
endforeach()
if(called)
  string(REPLACE ";" ", " called "${called}")
  message(FATAL_ERROR "the library calls what the simulation does not have: ${called}. Define it in "
                      "tests/sim/engine, or add it to harmless_calls.txt if it neither waits, nor "
                      "reads time or chance, nor tells processes apart.")
endif()
