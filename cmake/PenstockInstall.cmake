# What `cmake --install` leaves: headers, libpenstock.so, the workloads and benchmarks, and the
# package that find_package(penstock) reads. In a wheel: libpenstock.so beside the extension.
if(SKBUILD)
    install(TARGETS penstock LIBRARY DESTINATION penstock COMPONENT python)
    penstock_install_kernels(penstock penstock COMPONENT python)
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
        DESTINATION "${package}")
