# Everything that is built on the library: fronts, workloads, benchmarks, tests of all of it.
#
# frontends/NAME/               a front; its CMakeLists.txt makes the target that is named for it
# workloads/NAME/*.cc *.cu      libpenstock_NAME.so (target penstock_NAME), included as "NAME/x.h"
# workloads/NAME/*_test.cc .cu  the program penstock_NAME_test
# bench/NAME.cc [NAME.cu]       the program penstock-bench-NAME, linked with every workload
# bench/*/*.cc                  code that these programs share
# bench/programs/NAME.cc        the program penstock-program-NAME, which a benchmark in Python runs
# tests/NAME_test.cc [.cu]      the program NAME_test, linked with every workload and `testing`
# tests/NAME/*.cc [*.cu]        the program NAME_test of several files, included as "NAME/x.h"
# tests/programs/NAME.cc        the program penstock-test-NAME, which tests in Python run, with the
#                               files of tests/programs/NAME/
#
# As in rooms, a new file needs no edit of a CMake file.

set_property(GLOBAL PROPERTY PENSTOCK_WORKLOADS "")
# The targets for users, without tests and benchmarks: `make install` and a wheel need them.
add_custom_target(penstock_runtime)
add_dependencies(penstock_runtime penstock)
# The programs behind `penstock bench`; a plain installation does not have them.
add_custom_target(penstock_benchmarks)

# Adds a target to `group`, and installs it into the Python package (see PenstockInstall.cmake).
function(penstock_program group target component)
    add_dependencies(${group} ${target})
    if(TARGET ${target}_cuda)
        add_dependencies(${group} ${target}_cuda)
    endif()
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(TARGETS ${target} DESTINATION penstock COMPONENT ${component} EXCLUDE_FROM_ALL)
    penstock_install_kernels(${target} penstock COMPONENT ${component} EXCLUDE_FROM_ALL)
endfunction()

# Builds the front in frontends/NAME if OPTION is on, and installs its TARGET into the Python
# package, beside the library.
function(penstock_frontend name)
    cmake_parse_arguments(PARSE_ARGV 1 FRONT "" "TARGET;OPTION" "")
    if(NOT ${FRONT_OPTION})
        return()
    endif()
    set(folder "${PROJECT_SOURCE_DIR}/frontends/${name}")
    add_subdirectory("${folder}")
    target_include_directories(${FRONT_TARGET} PRIVATE "${folder}")
    target_link_libraries(${FRONT_TARGET} PRIVATE penstock_flags)
    penstock_program(penstock_runtime ${FRONT_TARGET} package)
endfunction()

function(penstock_workload name)
    set(folder "${PROJECT_SOURCE_DIR}/workloads/${name}")
    file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cc")
    file(GLOB kernels CONFIGURE_DEPENDS "${folder}/*.cu")
    file(GLOB tests CONFIGURE_DEPENDS "${folder}/*_test.cc")
    file(GLOB test_kernels CONFIGURE_DEPENDS "${folder}/*_test.cu")
    list(REMOVE_ITEM sources "" ${tests})
    list(REMOVE_ITEM kernels "" ${test_kernels})
    if(NOT sources AND NOT kernels)
        return()
    endif()
    set(target penstock_${name})
    add_library(${target} SHARED ${sources})
    target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}/workloads")
    target_link_libraries(${target} PUBLIC penstock PRIVATE penstock_flags)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    # A workload with preemption points is one of benchmarks and tests. Without the compiler its
    # blocks spin.
    set(points "")
    foreach(kernel IN LISTS kernels)
        file(STRINGS "${kernel}" found REGEX "^ *#pragma preempt")
        list(APPEND points ${found})
    endforeach()
    set(preempt "")
    if(points AND TARGET penstock_preempt)
        set(preempt PREEMPT)
    endif()
    if(kernels)
        penstock_add_kernels(${target} ${kernels} ${preempt})
    endif()
    if(points)
        penstock_program(penstock_benchmarks ${target} benchmarks)
    else()
        penstock_program(penstock_runtime ${target} package)
    endif()
    if(NOT SKBUILD)
        install(TARGETS ${target} DESTINATION "${CMAKE_INSTALL_LIBDIR}")
        penstock_install_kernels(${target} "${CMAKE_INSTALL_LIBDIR}")
    endif()
    set_property(GLOBAL APPEND PROPERTY PENSTOCK_WORKLOADS ${target})
    if(tests AND PENSTOCK_TESTS)
        penstock_library_test(${target}_test ${tests})
        target_link_libraries(${target}_test PRIVATE ${target})
        if(test_kernels)
            penstock_add_kernels(${target}_test ${test_kernels})
        endif()
    endif()
endfunction()

function(penstock_workloads)
    file(GLOB folders CONFIGURE_DEPENDS
         "${PROJECT_SOURCE_DIR}/workloads/*")
    foreach(folder IN LISTS folders)
        if(IS_DIRECTORY "${folder}")
            cmake_path(GET folder FILENAME name)
            penstock_workload(${name})
        endif()
    endforeach()
endfunction()

function(penstock_benchmarks)
    get_property(workloads GLOBAL PROPERTY PENSTOCK_WORKLOADS)
    file(GLOB programs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/*.cc")
    file(GLOB shared CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/harness/*.cc")
    foreach(program IN LISTS programs)
        cmake_path(GET program STEM LAST_ONLY name)
        set(target penstock_bench_${name})
        # bench/NAME.cc and the files of bench/NAME/.
        file(GLOB parts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/${name}/*.cc")
        add_executable(${target} "${program}" ${parts} ${shared})
        target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}"
                                                     "${PROJECT_SOURCE_DIR}/src")
        target_link_libraries(${target} PRIVATE penstock_fixtures penstock penstock_flags
                                                penstock_system ${workloads})
        set_target_properties(${target} PROPERTIES OUTPUT_NAME penstock-bench-${name})
        if(EXISTS "${PROJECT_SOURCE_DIR}/bench/${name}.cu")
            penstock_add_kernels(${target} "${PROJECT_SOURCE_DIR}/bench/${name}.cu")
        endif()
        penstock_program(penstock_benchmarks ${target} benchmarks)
    endforeach()
endfunction()

# Makes the target PkgConfig::FUSE3 where libfuse3 is installed.
macro(penstock_find_fuse)
    find_package(PkgConfig)
    if(PkgConfig_FOUND AND NOT TARGET PkgConfig::FUSE3)
        pkg_check_modules(FUSE3 IMPORTED_TARGET fuse3>=3.12)
    endif()
endmacro()

# The programs that benchmarks in Python run. Some are file systems, which need libfuse3; without it
# the benchmarks leave out the rows that need them.
function(penstock_benchmark_programs)
    penstock_find_fuse()
    file(GLOB programs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/bench/programs/*.cc")
    foreach(program IN LISTS programs)
        cmake_path(GET program STEM LAST_ONLY name)
        file(STRINGS "${program}" fuse REGEX "^#include <fuse3/")
        if(fuse AND NOT TARGET PkgConfig::FUSE3)
            continue()
        endif()
        set(target penstock_program_${name})
        add_executable(${target} "${program}")
        # Most of them stand for programs that do not know the library.
        target_link_libraries(${target} PRIVATE -Wl,--as-needed penstock penstock_flags)
        if(fuse)
            target_link_libraries(${target} PRIVATE PkgConfig::FUSE3)
        endif()
        set_target_properties(${target} PROPERTIES OUTPUT_NAME penstock-program-${name})
        penstock_program(penstock_benchmarks ${target} benchmarks)
    endforeach()
endfunction()

# The programs that tests in Python run. All are file systems; without libfuse3 the tests that need
# them are skipped. They do not know the library.
function(penstock_test_programs)
    penstock_find_fuse()
    if(NOT TARGET PkgConfig::FUSE3)
        return()
    endif()
    file(GLOB programs CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/programs/*.cc")
    foreach(program IN LISTS programs)
        cmake_path(GET program STEM LAST_ONLY name)
        file(GLOB parts CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/programs/${name}/*.cc")
        set(target penstock_test_${name})
        add_executable(${target} "${program}" ${parts})
        target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/tests/programs")
        target_link_libraries(${target} PRIVATE PkgConfig::FUSE3 penstock_flags)
        set_target_properties(${target} PROPERTIES OUTPUT_NAME penstock-test-${name})
    endforeach()
endfunction()

function(penstock_whole_tests)
    get_property(workloads GLOBAL PROPERTY PENSTOCK_WORKLOADS)
    file(GLOB tests CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*_test.cc")
    foreach(test IN LISTS tests)
        cmake_path(GET test STEM LAST_ONLY name)
        penstock_library_test(${name} "${test}")
        target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
        target_link_libraries(${name} PRIVATE ${workloads})
        if(EXISTS "${PROJECT_SOURCE_DIR}/tests/${name}.cu")
            penstock_add_kernels(${name} "${PROJECT_SOURCE_DIR}/tests/${name}.cu")
        endif()
    endforeach()
    file(GLOB folders CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/*")
    foreach(folder IN LISTS folders)
        file(GLOB sources CONFIGURE_DEPENDS "${folder}/*.cc")
        file(GLOB kernels CONFIGURE_DEPENDS "${folder}/*.cu")
        cmake_path(GET folder FILENAME name)
        if(NOT IS_DIRECTORY "${folder}" OR NOT sources OR name STREQUAL "programs")
            continue()
        endif()
        penstock_library_test(${name}_test ${sources})
        target_include_directories(${name}_test PRIVATE "${PROJECT_SOURCE_DIR}/tests")
        if(kernels)
            penstock_add_kernels(${name}_test ${kernels})
        endif()
    endforeach()
endfunction()
