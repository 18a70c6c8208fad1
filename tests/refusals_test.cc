// Goal: what g++ cannot make of a CUDA source, or must not, does not compile, and the message says
// what to do: compiles small sources as penstock_add_kernels() does.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace penstock {
namespace {

using testing::AllOf;
using testing::HasSubstr;

struct Compiled {
    bool ok;
    std::string said;
};

// Compiles `text` as a .cu file of a target with kernels. `how`: the option that gives the
// project's headers; an installed package is found by -isystem, where the preprocessor cuts lines
// in pieces.
Compiled compile(const std::string& text, const std::string& how = "-I") {
    namespace fs = std::filesystem;
    char name[] = "/tmp/penstock-refusals-XXXXXX";
    const fs::path folder = mkdtemp(name);
    std::ofstream(folder / "a.cu") << text;
    const std::string source = PENSTOCK_SOURCE_DIR;
    const std::string
        command = "cd '" + folder.string() + "' && sh '" + source +
                  "/cmake/penstock-kernel-compile.sh' '" + PENSTOCK_TEST_COMPILER +
                  "' -std=c++20 -I'" + source + "/include/penstock/language/toolkit' " + how + "'" +
                  source + "/include' -x c++ -include penstock/language/cuda.h -o a.o -c a.cu 2>&1";
    FILE* pipe = popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    Compiled result{};
    for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe))
        result.said += static_cast<char>(c);
    result.ok = pclose(pipe) == 0;
    EXPECT_EQ(result.ok, fs::exists(folder / "a.o")) << result.said;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), {}), result.ok ? 2 : 1)
        << "files were left over";
    fs::remove_all(folder);
    return result;
}

// A kernel with `body`, with files at hand.
std::string kernel_of(const std::string& body) {
    return "#include \"penstock/device/file.cuh\"\n"
           "using namespace penstock;\n"
           "__global__ void kernel(DeviceFileSystem fs, int64_t* out) {\n" +
           body + "\n}\n";
}

// The page that says what is refused has the message word by word.
void expect_on_page(const std::string& said) {
    std::ifstream file(std::string(PENSTOCK_SOURCE_DIR) + "/docs/guide/cuda-language.md");
    const std::string page{std::istreambuf_iterator<char>(file), {}};
    const size_t begin = said.find("error: penstock: ");
    ASSERT_NE(begin, std::string::npos) << said;
    EXPECT_THAT(page, HasSubstr("`" + said.substr(begin, said.find('\n', begin) - begin) + "`"));
}

TEST(Refusals, ADescriptorInAnIntDoesNotCompile) {
    for (const char* type : {"int", "unsigned", "short", "bool", "double"}) {
        const Compiled refused = compile(
            kernel_of(std::string("    ") + type + " file = gopen(fs, \"a\", 0); *out = file;"));
        EXPECT_FALSE(refused.ok) << type;
        EXPECT_THAT(refused.said, AllOf(HasSubstr("penstock::Descriptor file = penstock::gopen"),
                                        HasSubstr("a.cu:4:")))
            << type;
    }
    const Compiled as_before = compile(
        kernel_of("    Descriptor a = gopen(fs, \"a\", 0); int64_t b = gopen(fs, \"b\", 0);\n"
                  "    long long c = gopen(fs, \"c\", 0); const auto d = gopen(fs, \"d\", 0);\n"
                  "    if (d < 0 || gopen(fs, \"e\", 0) == -2) return;\n"
                  "    *out = a + b + c + gread(fs, d, 0, 8, out) + gclose(fs, d);"));
    EXPECT_TRUE(as_before.ok) << as_before.said;
}

TEST(Refusals, LaunchesByBracketsSayWhatStandsForThem) {
    const Compiled refused = compile(
        "__global__ void kernel(int* out) { *out = 1; }\n"
        "void host(int* out) {\n"
        "    kernel<<<1, 32>>>(out);\n"
        "}\n");
    EXPECT_FALSE(refused.ok);
    EXPECT_THAT(refused.said, AllOf(HasSubstr("a.cu:3: error: penstock: <<<...>>>"),
                                    HasSubstr("penstock::launch(stream, {grid, block, shared}")));
    expect_on_page(refused.said);
}

TEST(Refusals, TexturesAndSurfacesAndAssemblySayWhatStandsForThem) {
    const Compiled texture = compile(
        "__global__ void kernel(cudaTextureObject_t t, float* out) {\n"
        "    *out = tex2D<float>(t, 1.0f, 2.0f);\n"
        "}\n");
    EXPECT_FALSE(texture.ok);
    EXPECT_THAT(texture.said, HasSubstr("a.cu:2: error: penstock: there are no textures: read"));
    expect_on_page(texture.said);
    const Compiled surface = compile(
        "__global__ void kernel(cudaSurfaceObject_t s) {\n"
        "    surf2Dwrite(1.0f, s, 4, 5);\n"
        "}\n");
    EXPECT_FALSE(surface.ok);
    EXPECT_THAT(surface.said, HasSubstr("a.cu:2: error: penstock: there are no surfaces: write"));
    expect_on_page(surface.said);
    const Compiled assembly = compile(
        "__global__ void kernel(unsigned* out) {\n"
        "    unsigned lane;\n"
        "    asm volatile(\"mov.u32 %0, %%laneid;\" : \"=r\"(lane));\n"
        "    *out = lane;\n"
        "}\n");
    EXPECT_FALSE(assembly.ok);
    EXPECT_THAT(assembly.said, HasSubstr("a.cu:3: error: penstock: inline PTX is for GPUs"));
    expect_on_page(assembly.said);
}

TEST(Refusals, ErrorsOfASourceWithDynamicSharedMemoryNameItsLines) {
    for (const char* how : {"-I", "-isystem"}) {
        const Compiled rewritten = compile(
            "__global__ void kernel(float* out) {\n"
            "    extern __shared__ __align__(16) float part[]; volatile extern __shared__ int "
            "p[];\n"
            "    part[0] = \"<<<\"[0] + p[1];\n"
            "    *out = part[0];\n"
            "}\n",
            how);
        EXPECT_TRUE(rewritten.ok) << rewritten.said;
        const Compiled wrong = compile(
            "__global__ void kernel(float* out) {\n"
            "    extern __shared__\n"
            "        float part[];\n"
            "    *out = part[0] + nowhere;\n"
            "}\n",
            how);
        EXPECT_FALSE(wrong.ok);
        EXPECT_THAT(wrong.said, AllOf(HasSubstr("a.cu:4:"), HasSubstr("nowhere"),
                                      testing::Not(HasSubstr("extern"))));
    }
}

}  // namespace
}  // namespace penstock
