// Goal: penstock_add_kernels() in a program's CMakeLists.txt: building the program builds its
// kernel library, registers are bounded where that is asked for, and nvcc is given CUDA's own
// headers, not those for g++. The stand-in nvcc writes down its arguments.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace penstock {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kProject = R"(
cmake_minimum_required(VERSION 3.22)
project(program CXX)
add_library(penstock::penstock INTERFACE IMPORTED)
target_include_directories(penstock::penstock INTERFACE "@SOURCE@/include")
include("@SOURCE@/cmake/PenstockKernels.cmake")
add_executable(program main.cc)
set_target_properties(program PROPERTIES CXX_STANDARD 20)
target_link_libraries(program PRIVATE penstock::penstock)
penstock_add_kernels(program a.cu MAX_REGISTERS 64)
)";

constexpr const char* kNvcc = R"(#!/bin/sh
echo "$@" >>"$(dirname "$0")/arguments"
while [ "$1" != -o ]; do shift; done
: >"$2"
)";

class AddKernels : public testing::Test {
protected:
    void SetUp() override {
        char name[] = "/tmp/penstock-add-kernels-XXXXXX";
        folder_ = mkdtemp(name);
        std::string project = kProject;
        const std::string mark = "@SOURCE@";
        for (size_t at; (at = project.find(mark)) != std::string::npos;)
            project.replace(at, mark.size(), PENSTOCK_SOURCE_DIR);
        write("CMakeLists.txt", project);
        write("main.cc", "int main() { return 0; }\n");
        write("a.cu",
              "#include <cuda_fp16.h>\n__global__ void kernel(__half* out) { *out = 1; }\n");
        write("nvcc", kNvcc);
        fs::permissions(folder_ / "nvcc", fs::perms::owner_all);
    }
    void TearDown() override { fs::remove_all(folder_); }

    void write(const char* name, const std::string& text) const {
        std::ofstream(folder_ / name) << text;
    }
    [[nodiscard]] std::string read(const char* name) const {
        std::ifstream file(folder_ / name);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    // Runs a command in the folder; what it says is in the file `log`.
    [[nodiscard]] bool run(const std::string& command) const {
        const std::string line = "cd '" + folder_.string() + "' && " + command + " >>log 2>&1";
        return std::system(line.c_str()) == 0;
    }

    fs::path folder_;
};

TEST_F(AddKernels, BuildingTheProgramBuildsItsKernelLibrary) {
    ASSERT_TRUE(
        run("cmake -S . -B build -DPENSTOCK_NVCC=\"$PWD/nvcc\" -DPENSTOCK_CUDA=ON"
            " -DCMAKE_CXX_COMPILER='" PENSTOCK_TEST_COMPILER "'"))
        << read("log");
    ASSERT_TRUE(run("cmake --build build --target program")) << read("log");
    EXPECT_TRUE(fs::exists(folder_ / "build/program"));
    EXPECT_TRUE(fs::exists(folder_ / "build/libprogram_cuda.so")) << read("log");
    const std::string arguments = read("arguments");
    EXPECT_THAT(arguments, HasSubstr("-maxrregcount=64"));
    EXPECT_THAT(arguments, HasSubstr("include"));
    EXPECT_THAT(arguments, Not(HasSubstr("toolkit")));
}

}  // namespace
}  // namespace penstock
