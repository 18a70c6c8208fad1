# Compiler flags for everything that is built here. None of them reaches users of the installed
# package.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release or Debug" FORCE)
endif()
# NDEBUG is not set, so asserts stay. No -march=native: the code tests CPU features at run time.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1")

find_program(PENSTOCK_CCACHE ccache)
mark_as_advanced(PENSTOCK_CCACHE)
if(PENSTOCK_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${PENSTOCK_CCACHE}")
endif()

add_library(penstock_flags INTERFACE)
# -Wno-restrict: GCC 12 sees overlaps in operator+ of std::string that cannot be (its bug 105651).
target_compile_options(penstock_flags INTERFACE -Wall -Wextra -Wshadow -Wno-restrict
                       -fno-omit-frame-pointer
                       $<$<STREQUAL:${CMAKE_SYSTEM_PROCESSOR},x86_64>:-mno-red-zone>
                       $<$<BOOL:${PENSTOCK_WERROR}>:-Werror>)

if(PENSTOCK_SANITIZE STREQUAL "address")
    # UBSan without recovery, so that a finding fails the test. vptr needs RTTI of both sides: left
    # out.
    set(flags -fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined)
elseif(PENSTOCK_SANITIZE STREQUAL "thread")
    set(flags -fsanitize=thread -Wno-tsan)  # -Wno-tsan: fences are named where they matter
elseif(PENSTOCK_SANITIZE)
    message(FATAL_ERROR "PENSTOCK_SANITIZE is '${PENSTOCK_SANITIZE}'; address, thread or empty")
endif()
if(PENSTOCK_SANITIZE)
    # Instrumented code makes GCC 12 see uninitialised words in <regex> and <functional>; the
    # release build warns of real ones.
    add_compile_options(${flags} -Wno-maybe-uninitialized)
    # ccache needs it for precompiled headers.
    add_compile_options($<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)
    add_link_options(${flags})
endif()
