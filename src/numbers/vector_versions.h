// Compiler attributes that vectorize the inner loops, for several vector instruction sets.
#pragma once

// Compiles several versions of a function and chooses one when the library is loaded, where the
// compiler and the C library support GNU indirect functions. A Clang before version 22 is left out,
// because it does not define the macros of the sanitizers.
#if defined(__x86_64__) && defined(__GNUC__) && (!defined(__clang__) || __clang_major__ >= 22) && \
    defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define MV_VECTOR_VERSIONS __attribute__((target_clones("avx512f", "avx2", "default")))
#define MV_HAS_VECTOR_VERSIONS 1
#else
#define MV_VECTOR_VERSIONS
#define MV_HAS_VECTOR_VERSIONS 0
#endif

// Specializes the template Name by the function of this name in the namespace `body`, in several
// versions. Clang's versions of a template itself end the process when the library is loaded.
#if defined(__clang__)
#define MV_VERSIONS(Result, Name, Parameters, Arguments)                                      \
  static MV_VECTOR_VERSIONS Result Name##Versions Parameters { return body::Name Arguments; } \
  template <>                                                                                 \
  Result Name Parameters {                                                                    \
    return Name##Versions Arguments;                                                          \
  }
#else
#define MV_VERSIONS(Result, Name, Parameters, Arguments) \
  template <>                                            \
  MV_VECTOR_VERSIONS Result Name Parameters {            \
    return body::Name Arguments;                         \
  }
#endif

// The arrays of a loop overlap only element for element (out == delta), which does not prevent
// vectorization, but the compiler cannot know that.
#if defined(__clang__)
#define MV_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define MV_INDEPENDENT _Pragma("GCC ivdep")
#else
#define MV_INDEPENDENT
#endif
