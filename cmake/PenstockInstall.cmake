# What `cmake --install` installs.
#
# component package     the compiled parts of the Python package in penstock/: for a wheel, and for
#                       .venv (setup/link-python.sh)
# component benchmarks  the programs behind `penstock bench`, beside them
# all else              for `make install`: libraries, headers, the files of find_package(penstock),
#                       penstock.pc, the Python package and the command
install(TARGETS penstock LIBRARY DESTINATION penstock COMPONENT package EXCLUDE_FROM_ALL)
penstock_install_kernels(penstock penstock COMPONENT package EXCLUDE_FROM_ALL)
if(SKBUILD)
    return()
endif()

include(CMakePackageConfigHelpers)
set(package "${CMAKE_INSTALL_LIBDIR}/cmake/penstock")

install(TARGETS penstock EXPORT penstockTargets LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
penstock_install_kernels(penstock "${CMAKE_INSTALL_LIBDIR}")
install(DIRECTORY include/penstock DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
        FILES_MATCHING PATTERN "*.h" PATTERN "*.cuh")
install(EXPORT penstockTargets NAMESPACE penstock:: DESTINATION "${package}")
configure_package_config_file(cmake/penstockConfig.cmake.in penstockConfig.cmake
                              INSTALL_DESTINATION "${package}")
write_basic_package_version_file(penstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/penstockConfig.cmake"
              "${CMAKE_CURRENT_BINARY_DIR}/penstockConfigVersion.cmake"
              cmake/PenstockKernels.cmake cmake/PenstockCudaLibrary.cu
              cmake/penstock-kernel-compile.sh cmake/penstock-kernel-source.awk
        DESTINATION "${package}")

# Paths in penstock.pc are relative to it: the prefix is known only when it is installed.
file(RELATIVE_PATH PENSTOCK_PC_PREFIX "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /prefix)
string(REGEX REPLACE "/$" "" PENSTOCK_PC_PREFIX "${PENSTOCK_PC_PREFIX}")
configure_file(cmake/penstock.pc.in penstock.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/penstock.pc"
        DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

if(NOT PENSTOCK_PYTHON)
    return()
endif()
# Do not use the Python of a virtual environment: the installed files outlive it.
execute_process(COMMAND "${Python_EXECUTABLE}" -c "import sys; print(sys._base_executable)"
                OUTPUT_VARIABLE PENSTOCK_BASE_PYTHON OUTPUT_STRIP_TRAILING_WHITESPACE
                COMMAND_ERROR_IS_FATAL ANY)
configure_file(cmake/find_python_folder.cmake.in find_python_folder.cmake @ONLY)
install(SCRIPT "${CMAKE_CURRENT_BINARY_DIR}/find_python_folder.cmake")
# The script sets PENSTOCK_PYTHON_FOLDER, LIB/pythonX.Y/site-packages or the like below the prefix.
set(folder "\${PENSTOCK_PYTHON_FOLDER}/penstock")
set_target_properties(_core PROPERTIES
                      INSTALL_RPATH "$ORIGIN;$ORIGIN/../../../../${CMAKE_INSTALL_LIBDIR}")
install(TARGETS _core LIBRARY DESTINATION "${folder}")
install(DIRECTORY frontends/python/penstock/ DESTINATION "${folder}"
        PATTERN "__pycache__" EXCLUDE)
install(PROGRAMS "${CMAKE_CURRENT_BINARY_DIR}/penstock-command"
        DESTINATION "${CMAKE_INSTALL_BINDIR}" RENAME penstock)
