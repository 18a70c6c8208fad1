# A room of src/ as a CMake target: penstock_room(NAME [TEST_ONLY] DEPENDS rooms...).
#
# src/NAME/**.cc       the OBJECT library penstock_room_NAME, in libpenstock.so unless TEST_ONLY
# src/NAME/**_test.cc  one GoogleTest program NAME_test, linked only with this room and the rooms
#                      below it, so that its tests do not wait for the rooms above
# src/NAME/**_fixture.cc  code of tests and benchmarks, in the static library penstock_fixtures
# src/NAME/**_test.cu  kernels of the room's tests, through both compilers; NAME_test then links
#                      the whole library
# src/NAME/**_fake.cc  X_fake.so beside NAME_test, which opens it: a stand-in for another library
#
# A room without a .cc is skipped. A new file needs no edit: globs are checked at each build.
find_package(Threads REQUIRED)
# Links static libraries if there are any, so that a wheel carries all it needs.
find_path(PENSTOCK_LIBURING_INCLUDE liburing.h)
find_library(PENSTOCK_LIBURING NAMES liburing.a uring)
find_library(PENSTOCK_BOOST_CONTEXT libboost_context.a)
mark_as_advanced(PENSTOCK_LIBURING_INCLUDE PENSTOCK_LIBURING PENSTOCK_BOOST_CONTEXT)
set(missing "")
if(NOT PENSTOCK_LIBURING_INCLUDE OR NOT PENSTOCK_LIBURING)
    string(APPEND missing " liburing-dev")
endif()
if(NOT PENSTOCK_BOOST_CONTEXT)
    string(APPEND missing " libboost-context-dev")
endif()
if(missing)
    message(FATAL_ERROR "penstock: missing${missing}; run: apt-get install${missing}")
endif()

# The libraries that libpenstock.so is linked with.
add_library(penstock_system INTERFACE)
target_link_libraries(penstock_system INTERFACE "${PENSTOCK_BOOST_CONTEXT}" "${PENSTOCK_LIBURING}"
                      Threads::Threads ${CMAKE_DL_LIBS})

set_property(GLOBAL PROPERTY PENSTOCK_ROOMS "")

function(penstock_room name)
    cmake_parse_arguments(PARSE_ARGV 1 ROOM "TEST_ONLY" "" "DEPENDS")
    set(folder "${CMAKE_CURRENT_SOURCE_DIR}/src/${name}")
    file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${folder}/*.cc")
    file(GLOB_RECURSE tests CONFIGURE_DEPENDS "${folder}/*_test.cc")
    file(GLOB_RECURSE apart CONFIGURE_DEPENDS "${folder}/*_fuzz.cc" "${folder}/*_bench.cc")
    file(GLOB_RECURSE fixtures CONFIGURE_DEPENDS "${folder}/*_fixture.cc")
    file(GLOB_RECURSE fakes CONFIGURE_DEPENDS "${folder}/*_fake.cc")
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS "${folder}/*_test.cu")
    if(tests OR apart OR fakes OR fixtures)
        list(REMOVE_ITEM sources ${tests} ${apart} ${fakes} ${fixtures})
    endif()
    set_property(GLOBAL APPEND PROPERTY PENSTOCK_FIXTURES ${fixtures})

    set_property(GLOBAL APPEND PROPERTY PENSTOCK_ROOMS ${name})
    set_property(GLOBAL PROPERTY PENSTOCK_ROOM_${name}_DEPENDS ${ROOM_DEPENDS})
    set_property(GLOBAL PROPERTY PENSTOCK_ROOM_${name}_TEST_ONLY ${ROOM_TEST_ONLY})
    set_property(GLOBAL PROPERTY PENSTOCK_ROOM_${name}_TESTS ${tests})
    set_property(GLOBAL PROPERTY PENSTOCK_ROOM_${name}_KERNELS ${kernels})
    set_property(GLOBAL PROPERTY PENSTOCK_ROOM_${name}_FAKES ${fakes})
    if(sources)
        set(room penstock_room_${name})
        add_library(${room} OBJECT ${sources})
        target_include_directories(${room} PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/include"
                                                   "${CMAKE_CURRENT_SOURCE_DIR}/src")
        target_include_directories(${room} SYSTEM PRIVATE "${PENSTOCK_LIBURING_INCLUDE}")
        target_link_libraries(${room} PRIVATE penstock_flags)
    endif()
endfunction()

# Makes one library of the fixtures of all rooms. Tests and benchmarks link the parts they use.
function(penstock_fixtures)
    get_property(fixtures GLOBAL PROPERTY PENSTOCK_FIXTURES)
    add_library(penstock_fixtures STATIC EXCLUDE_FROM_ALL ${fixtures})
    target_include_directories(penstock_fixtures PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/include"
                                                         "${CMAKE_CURRENT_SOURCE_DIR}/src")
    target_link_libraries(penstock_fixtures PRIVATE penstock_flags)
endfunction()

# The object files of all rooms that belong to the shared library.
function(penstock_library)
    add_library(penstock SHARED)
    add_library(penstock::penstock ALIAS penstock)
    target_include_directories(penstock PUBLIC
                               $<BUILD_INTERFACE:${CMAKE_CURRENT_SOURCE_DIR}/include>
                               $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    target_compile_features(penstock PUBLIC cxx_std_20)
    target_link_libraries(penstock PRIVATE $<BUILD_INTERFACE:penstock_system>)
    # Symbols of the static libraries are not exported, since the program may bring its own.
    # Calls from one room to another are direct. Through the PLT, where a program could replace
    # them, each call would have to fetch one more word after a long copy.
    target_link_options(penstock PRIVATE LINKER:--exclude-libs,ALL LINKER:-Bsymbolic-functions)
    set_target_properties(penstock PROPERTIES LINKER_LANGUAGE CXX)
    if(NOT SKBUILD)  # a wheel cannot hold symbolic links
        set_target_properties(penstock PROPERTIES VERSION ${PROJECT_VERSION}
                              SOVERSION ${PROJECT_VERSION_MAJOR})
    endif()
    get_property(rooms GLOBAL PROPERTY PENSTOCK_ROOMS)
    foreach(room IN LISTS rooms)
        get_property(test_only GLOBAL PROPERTY PENSTOCK_ROOM_${room}_TEST_ONLY)
        if(TARGET penstock_room_${room} AND NOT test_only)
            target_sources(penstock PRIVATE $<TARGET_OBJECTS:penstock_room_${room}>)
        endif()
    endforeach()
endfunction()

# Precompiles GoogleTest's headers for all test programs of a sanitizer build. The release build
# does not, so that it finds a file that lacks an include. Headers of rooms are not precompiled:
# GCC 12 then warns of copies within <string> that cannot happen.
function(penstock_test_headers name)
    get_property(owner GLOBAL PROPERTY PENSTOCK_TEST_HEADERS)
    if(owner)
        target_precompile_headers(${name} REUSE_FROM ${owner})
    else()
        target_precompile_headers(${name} PRIVATE <gmock/gmock.h> <gtest/gtest.h>)
        set_property(GLOBAL PROPERTY PENSTOCK_TEST_HEADERS ${name})
    endif()
endfunction()

# Programs in which a sanitizer has nothing to find: tests of documents, of compilers, of the
# memory-model explorer; for TSan also programs with one thread that make no system calls.
set(PENSTOCK_NOT_SANITIZED "")
if(PENSTOCK_SANITIZE)
    set(PENSTOCK_NOT_SANITIZED docs_test memory_model_test two_compilers_test add_kernels_test
        refusals_test)
    if(PENSTOCK_SANITIZE STREQUAL "thread")
        list(APPEND PENSTOCK_NOT_SANITIZED access_test extent_test page_cache_test planner_test
             readahead_test)
        # Nor programs of users of the library: the tests of its rooms contain it.
        list(APPEND PENSTOCK_NOT_SANITIZED gpu_test penstock_scan_test penstock_preemption_test)
    endif()
endif()

# Adds a GoogleTest program.
function(penstock_test name)
    find_package(GTest REQUIRED)
    if(NOT TARGET penstock_test_main)
        add_library(penstock_test_main OBJECT "${PROJECT_SOURCE_DIR}/tests/main.cc")
        target_link_libraries(penstock_test_main PRIVATE penstock_flags GTest::gmock GTest::gtest)
    endif()
    add_executable(${name} ${ARGN} $<TARGET_OBJECTS:penstock_test_main>)
    target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/include"
                                               "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(${name} PRIVATE penstock_flags GTest::gmock GTest::gtest)
    target_compile_definitions(${name} PRIVATE PENSTOCK_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                                               PENSTOCK_TEST_COMPILER="${CMAKE_CXX_COMPILER}")
    # Lambdas shadow parameters of GoogleTest's macros, which have common names.
    target_compile_options(${name} PRIVATE -Wno-shadow)
    # Test code runs once: optimising it took a third of a release build. Kernels of tests are built
    # as users build theirs.
    set(sources ${ARGN})
    list(FILTER sources INCLUDE REGEX "_test\\.cc$")
    set_source_files_properties(${sources} PROPERTIES COMPILE_OPTIONS "$<$<CONFIG:Release>:-O1>")
    if(PENSTOCK_SANITIZE)
        penstock_test_headers(${name})
    endif()
    if(name IN_LIST PENSTOCK_NOT_SANITIZED)
        set_target_properties(${name} PROPERTIES EXCLUDE_FROM_ALL ON)
        return()
    endif()
    # The limit ends a hang. With ThreadSanitizer the longest tests take minutes.
    if(NOT PENSTOCK_SANITIZE)
        add_test(NAME ${name} COMMAND ${name})
        set_tests_properties(${name} PROPERTIES TIMEOUT 600)
    elseif(NOT name STREQUAL system_test)
        add_test(NAME ${name} COMMAND ${name})
        set_tests_properties(${name} PROPERTIES TIMEOUT 1500)
    else()  # programs run side by side: the longest in parts, which begin
        foreach(part RANGE 3)
            add_test(NAME ${name}_${part} COMMAND ${name})
            set_tests_properties(${name}_${part} PROPERTIES TIMEOUT 1500 COST 1000 ENVIRONMENT
                                 "GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${part}")
        endforeach()
    endif()
endfunction()

# Adds a GoogleTest program of the whole library, with the room `testing`.
function(penstock_library_test name)
    penstock_test(${name} ${ARGN})
    target_link_libraries(${name} PRIVATE penstock)
    if(TARGET penstock_room_testing)
        target_sources(${name} PRIVATE $<TARGET_OBJECTS:penstock_room_testing>)
    endif()
endfunction()

# Adds the stand-in X_fake.so, which tests open by its name beside the test program.
function(penstock_fake test source)
    cmake_path(GET source STEM LAST_ONLY stem)
    add_library(${stem} MODULE "${source}")
    target_include_directories(${stem} PRIVATE "${PROJECT_SOURCE_DIR}/include"
                                               "${PROJECT_SOURCE_DIR}/src")
    target_link_libraries(${stem} PRIVATE penstock_flags)
    set_target_properties(${stem} PROPERTIES PREFIX "")
    add_dependencies(${test} ${stem})
endfunction()

# Adds a GoogleTest program of one room and the rooms below it.
function(penstock_room_test room)
    get_property(below GLOBAL PROPERTY PENSTOCK_ROOM_${room}_DEPENDS)
    penstock_test(${room}_test ${ARGN})
    target_link_libraries(${room}_test PRIVATE penstock_fixtures penstock_system)
    foreach(part IN ITEMS ${room} LISTS below)
        if(TARGET penstock_room_${part})
            target_sources(${room}_test PRIVATE $<TARGET_OBJECTS:penstock_room_${part}>)
        endif()
    endforeach()
endfunction()

function(penstock_room_tests)
    get_property(rooms GLOBAL PROPERTY PENSTOCK_ROOMS)
    foreach(room IN LISTS rooms)
        get_property(tests GLOBAL PROPERTY PENSTOCK_ROOM_${room}_TESTS)
        get_property(kernels GLOBAL PROPERTY PENSTOCK_ROOM_${room}_KERNELS)
        get_property(fakes GLOBAL PROPERTY PENSTOCK_ROOM_${room}_FAKES)
        get_property(test_only GLOBAL PROPERTY PENSTOCK_ROOM_${room}_TEST_ONLY)
        if(NOT tests)
            continue()
        endif()
        if(kernels OR test_only)
            penstock_library_test(${room}_test ${tests})
            if(kernels)
                penstock_add_kernels(${room}_test ${kernels})
            endif()
        else()
            penstock_room_test(${room} ${tests})
        endif()
        foreach(fake IN LISTS fakes)
            penstock_fake(${room}_test "${fake}")
        endforeach()
    endforeach()
endfunction()
