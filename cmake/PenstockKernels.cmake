# penstock_add_kernels(TARGET a.cu ... [MAX_REGISTERS n] [PREEMPT]): kernels of a program or
# library, for every backend.
#
# PREEMPT: `penstock preempt` transforms the sources first, so that blocks of kernels with points
# may leave while they wait. Its output is in the build tree. PENSTOCK_PREEMPT names the program.
# The C++ compiler compiles each .cu into TARGET, for the CPU backend. An nvcc, if there is one,
# also compiles it into lib<TARGET>_cuda.so beside TARGET, which libpenstock opens when a CUDA
# device is used. TARGET itself never depends on CUDA, and CMake's CUDA language is not enabled.
# MAX_REGISTERS: registers that a GPU thread gets at most; 128 by default, so that two blocks of 256
# threads are resident on a multiprocessor, which has 65,536. A kernel with gread takes that many.
# Blocks of more than 512 threads need fewer: MAX_REGISTERS 64 for 1,024, or
# __launch_bounds__(1024, 1) at the kernel. A kernel that computes much and reads little may want
# more: 0 is no limit, and __launch_bounds__ of its own goes first.
# penstock_install_kernels(TARGET FOLDER) installs it: it must lie beside the module that holds
# TARGET, or in a folder of the environment variable PENSTOCK_CUDA_KERNELS. This file is part of the
# installed package and knows nothing of the project's tree.
#
# PENSTOCK_CUDA                AUTO (ON if there is an nvcc), ON (an error without an nvcc), OFF
# PENSTOCK_NVCC                the nvcc; default: $CUDACXX, PATH, $CUDA_PATH, /usr/local/cuda
# PENSTOCK_CUDA_ARCHITECTURES  a list such as 80;90; PTX is added for the highest. 90-virtual: PTX
#                              alone, in a quarter of the time; the driver compiles it at its load.
#                              86 and 89 run the code of 80: the wheel stays below 10 MB. $CUDAARCHS
#                              names others, as for CMake's own CUDA
set(PENSTOCK_CUDA AUTO CACHE STRING "Compile kernels with nvcc too: AUTO, ON or OFF")
set_property(CACHE PENSTOCK_CUDA PROPERTY STRINGS AUTO ON OFF)
set(default "75;80;90")
if(NOT "$ENV{CUDAARCHS}" STREQUAL "")
    set(default "$ENV{CUDAARCHS}")
endif()
set(PENSTOCK_CUDA_ARCHITECTURES "${default}" CACHE STRING
    "Architectures that nvcc compiles kernels for")
if(DEFINED ENV{CUDACXX})
    set(PENSTOCK_NVCC "$ENV{CUDACXX}" CACHE FILEPATH "nvcc, which compiles kernels for GPUs")
endif()
find_program(PENSTOCK_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda
             PATH_SUFFIXES bin DOC "nvcc, which compiles kernels for GPUs")

# The compiler of kernels with points; in Penstock's own tree it is the target penstock_preempt.
find_program(PENSTOCK_PREEMPT penstock-preempt
             HINTS "${CMAKE_CURRENT_LIST_DIR}/../../../bin"
                   "${CMAKE_CURRENT_LIST_DIR}/../../../../bin"
             DOC "penstock-preempt, which transforms kernels with points")

if(PENSTOCK_CUDA STREQUAL "ON" AND NOT PENSTOCK_NVCC)
    message(FATAL_ERROR "PENSTOCK_CUDA is ON, but no nvcc was found: set PENSTOCK_NVCC")
endif()

# The nvcc arguments that name the architectures: code for each but the virtual ones, PTX for the
# highest.
function(penstock_cuda_gencode out)
    set(arguments "")
    set(highest 0)
    foreach(name IN LISTS PENSTOCK_CUDA_ARCHITECTURES)
        string(REPLACE "-virtual" "" architecture "${name}")
        if(name STREQUAL architecture)
            list(APPEND arguments -gencode "arch=compute_${architecture},code=sm_${architecture}")
        endif()
        if(architecture GREATER highest)
            set(highest ${architecture})
        endif()
    endforeach()
    list(APPEND arguments -gencode "arch=compute_${highest},code=compute_${highest}")
    set(${out} ${arguments} PARENT_SCOPE)
endfunction()

# Transforms the sources in the list named by `list`, and puts the outputs into it.
function(penstock_preempt_kernels target list)
    set(program "${PENSTOCK_PREEMPT}")
    if(TARGET penstock_preempt)
        set(program "$<TARGET_FILE:penstock_preempt>")
    elseif(NOT program)
        message(FATAL_ERROR "penstock_add_kernels(${target} ... PREEMPT) needs penstock-preempt: "
                            "install libclang-19-dev and llvm-19-dev (or 16 to 18) and build "
                            "Penstock again, or set PENSTOCK_PREEMPT to its path")
    endif()
    set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}_preempt")
    file(MAKE_DIRECTORY "${folder}")
    set(includes "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
    set(definitions "$<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>")
    set(outputs "")
    foreach(source IN LISTS ${list})
        cmake_path(GET source STEM LAST_ONLY stem)
        string(SHA256 hash "${source}")
        string(SUBSTRING "${hash}" 0 8 hash)
        set(output "${folder}/${stem}-${hash}.cu")
        add_custom_command(
            OUTPUT "${output}"
            COMMAND "${program}" "${source}" -o "${output}" --depfile "${output}.d"
                    "-I$<JOIN:$<FILTER:${includes},EXCLUDE,^/usr/include$>,;-I>"
                    "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>"
            DEPENDS "${source}" "${program}"
            DEPFILE "${output}.d"
            COMMENT "penstock preempt ${stem}.cu for ${target}"
            COMMAND_EXPAND_LISTS VERBATIM)
        list(APPEND outputs "${output}")
    endforeach()
    set(${list} ${outputs} PARENT_SCOPE)
endfunction()

function(penstock_add_kernels target)
    cmake_parse_arguments(PARSE_ARGV 1 KERNELS "PREEMPT" "MAX_REGISTERS" "")
    set(given ${KERNELS_UNPARSED_ARGUMENTS})
    if(NOT TARGET ${target} OR NOT given)
        message(FATAL_ERROR "penstock_add_kernels(TARGET a.cu ...): needs a target and files")
    endif()
    if(NOT DEFINED KERNELS_MAX_REGISTERS)
        set(KERNELS_MAX_REGISTERS 128)
    endif()
    set(registers "")
    if(KERNELS_MAX_REGISTERS)
        set(registers -maxrregcount=${KERNELS_MAX_REGISTERS})
    endif()
    set(sources "")
    foreach(source IN LISTS given)
        cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}" NORMALIZE)
        list(APPEND sources "${source}")
    endforeach()
    if(KERNELS_PREEMPT)
        penstock_preempt_kernels(${target} sources)
    endif()
    target_sources(${target} PRIVATE ${sources})
    # Headers with the names of CUDA's (<cooperative_groups.h>), only for these files and g++.
    set(headers "$<TARGET_PROPERTY:penstock::penstock,INTERFACE_INCLUDE_DIRECTORIES>")
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target} PROPERTIES
        LANGUAGE CXX
        INCLUDE_DIRECTORIES "${headers}/penstock/language/toolkit"
        COMPILE_OPTIONS "-x;c++;-include;penstock/language/cuda.h;-Wno-unknown-pragmas")
    # penstock-kernel-compile.sh rewrites what g++ cannot read, or says what to do.
    get_target_property(launcher ${target} CXX_COMPILER_LAUNCHER)
    if(NOT launcher)
        set(launcher "")
    endif()
    set(script "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/penstock-kernel-compile.sh")
    if(NOT script IN_LIST launcher)
        list(PREPEND launcher sh "${script}")
        set_target_properties(${target} PROPERTIES CXX_COMPILER_LAUNCHER "${launcher}")
    endif()
    target_compile_definitions(${target} PRIVATE PENSTOCK_KERNEL_TARGET="${target}")
    if(NOT PENSTOCK_NVCC OR PENSTOCK_CUDA STREQUAL "OFF")
        return()
    endif()

    set(folder "${CMAKE_CURRENT_BINARY_DIR}/${target}_cuda")
    file(MAKE_DIRECTORY "${folder}")
    set(door "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/PenstockCudaLibrary.cu")
    penstock_cuda_gencode(gencode)
    list(GET gencode -1 ptx)
    string(REGEX MATCH "[0-9]+$" highest "${ptx}")
    if(registers AND NOT "${gencode}" MATCHES "code=sm_${highest}")
        # Of PTX alone ptxas warns that it ignores the limit, which is kept for the driver: that
        # compiles the PTX.
        list(APPEND registers -Xptxas -w)
    endif()
    set(includes "$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>")
    set(definitions "$<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>")
    set(optimise -O3)
    if(CMAKE_BUILD_TYPE STREQUAL "Debug")
        set(optimise -O1 -lineinfo)
    endif()
    set(warnings "")
    if(PENSTOCK_WERROR)
        set(warnings -Werror all-warnings -Xcompiler -Wall,-Wextra)
    endif()
    set(objects "")
    foreach(source IN LISTS sources ITEMS "${door}")
        cmake_path(GET source STEM LAST_ONLY stem)
        string(SHA256 hash "${source}")
        string(SUBSTRING "${hash}" 0 8 hash)
        set(object "${folder}/${stem}-${hash}.o")
        set(architectures ${gencode})
        if(source STREQUAL "${door}")  # host code only
            set(architectures "")
        endif()
        add_custom_command(
            OUTPUT "${object}"
            COMMAND "${PENSTOCK_NVCC}" -std=c++20 ${optimise} ${registers} ${architectures}
                    --threads 0 -ccbin "${CMAKE_CXX_COMPILER}" -Xcompiler -fPIC,-fvisibility=hidden
                    --expt-relaxed-constexpr ${warnings}
                    "-I$<JOIN:$<FILTER:${includes},EXCLUDE,^/usr/include$>,;-I>"
                    "$<$<BOOL:${definitions}>:-D$<JOIN:${definitions},;-D>>"
                    -MD -MF "${object}.d" -MT "${object}" -c "${source}" -o "${object}"
            DEPENDS "${source}"
            DEPFILE "${object}.d"
            COMMENT "nvcc ${stem}.cu for ${target}"
            COMMAND_EXPAND_LISTS VERBATIM)
        list(APPEND objects "${object}")
    endforeach()
    # Host functions that the .cu files name and the kernels do not need stay unresolved: only the
    # stubs are used. -Bsymbolic and hidden visibility keep them apart from the g++ functions of the
    # same names in TARGET.
    set(library "$<TARGET_FILE_DIR:${target}>/lib${target}_cuda.so")
    set(stamp "${folder}/linked")
    add_custom_command(
        OUTPUT "${stamp}"
        COMMAND "${CMAKE_COMMAND}" -E make_directory "$<TARGET_FILE_DIR:${target}>"
        COMMAND "${PENSTOCK_NVCC}" -shared -cudart static -ccbin "${CMAKE_CXX_COMPILER}"
                -Xlinker -Bsymbolic,--unresolved-symbols=ignore-all,-z,lazy
                ${objects} -o "${library}"
        COMMAND "${CMAKE_COMMAND}" -E touch "${stamp}"
        DEPENDS ${objects}
        COMMENT "Linking lib${target}_cuda.so"
        VERBATIM)
    add_custom_target(${target}_cuda ALL DEPENDS "${stamp}")
    set_target_properties(${target}_cuda PROPERTIES PENSTOCK_LIBRARY "${library}")
    # A build of the program alone builds its kernels too.
    add_dependencies(${target} ${target}_cuda)
endfunction()

# Installs lib<TARGET>_cuda.so, if it is built, into the folder that TARGET is installed into; more
# arguments are those of install().
function(penstock_install_kernels target destination)
    if(TARGET ${target}_cuda)
        get_target_property(library ${target}_cuda PENSTOCK_LIBRARY)
        install(FILES "${library}" DESTINATION "${destination}" ${ARGN})
    endif()
endfunction()
