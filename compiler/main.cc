// penstock-preempt: the compiler behind `penstock preempt`.
//
// Exit codes: 0 done; 1 the source has errors, or a file cannot be read or written; 2 usage.
// The output is written to a file beside it that is renamed, and only if there was no error.
#include <llvm/Support/FileSystem.h>
#include <llvm/Support/Path.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "compiler/command_line.h"
#include "compiler/transform.h"

namespace fs = std::filesystem;
using penstock::compiler::CommandLine;

namespace {

int fail(const std::string& text, int code) {
    std::cerr << "penstock preempt: " << text << "\n";
    return code;
}

// Finds Penstock's headers: beside the program, in its installation, or where it was built.
std::string include_folder(const char* program) {
    const fs::path self = llvm::sys::fs::getMainExecutable(
        program, reinterpret_cast<void*>(reinterpret_cast<intptr_t>(&include_folder)));
    const fs::path folder = self.parent_path();
    for (const fs::path& one :
         {folder / "include", folder.parent_path() / "include",
          folder.parent_path().parent_path() / "include", fs::path(PENSTOCK_INCLUDE_FOLDER)})
        if (fs::exists(one / "penstock" / "language" / "cuda.h")) return one.string();
    return "";
}

// Returns the file that an output goes to, behind links; empty if it cannot be one, with `error`.
fs::path output_file(const std::string& name, std::string& error) {
    std::error_code failed;
    const fs::path path = fs::weakly_canonical(fs::absolute(name), failed);
    if (name == "-") {
        error = "-: name a file for the output";
    } else if (failed) {
        error = name + ": " + failed.message();
    } else if (fs::exists(path) && !fs::is_regular_file(path)) {
        error = name + ": cannot be written: it is no regular file";
    } else if (!fs::is_directory(path.parent_path())) {
        error = name + ": cannot be written: make its folder first";
    } else {
        return path;
    }
    return {};
}

bool write_file(const std::string& name, const std::string& text, std::string& error) {
    const fs::path path = output_file(name, error);
    if (path.empty()) return false;
    const fs::path temporary = path.string() + ".penstock-" + std::to_string(getpid());
    {
        std::ofstream out(temporary, std::ios::binary);
        out << text;
        out.flush();
        if (!out) {
            error = name + ": " + std::strerror(errno);
            std::error_code ignored;
            fs::remove(temporary, ignored);
            return false;
        }
    }
    std::error_code failed;
    fs::rename(temporary, path, failed);
    if (!failed) return true;
    error = name + ": " + failed.message();
    fs::remove(temporary, failed);
    return false;
}

std::string make_rule(const std::string& output, const std::vector<std::string>& files) {
    std::string text = output + ":";
    for (const std::string& name : files) {
        // CMake does not resolve ".." in the paths of system headers.
        std::error_code error;
        std::string file = fs::weakly_canonical(name, error).string();
        for (size_t at = 0; (at = file.find(' ', at)) != std::string::npos; at += 2)
            file.insert(at, "\\");
        text += " \\\n  " + file;
    }
    return text + "\n";
}

bool is_same(const std::string& a, const std::string& b) {
    std::error_code error;
    return fs::weakly_canonical(a, error) == fs::weakly_canonical(b, error) ||
           (fs::exists(b, error) && fs::equivalent(a, b, error));
}

}  // namespace

int main(int count, char** words) {
    CommandLine line = penstock::compiler::parse_command_line(
        std::vector<std::string>(words + 1, words + count));
    if (line.help) {
        std::cout << penstock::compiler::kUsage;
        return 0;
    }
    if (!line.error.empty()) return fail(line.error, 2);
    if (line.output.empty() && !line.report && !line.json)
        return fail("no output: give -o FILE, or --report", 2);
    std::error_code error;
    if (!fs::is_regular_file(line.input, error))
        return fail(line.input + ": " + (error ? error.message() : "is no file"), 1);
    if (!line.output.empty() && is_same(line.input, line.output))
        return fail("the output " + line.output + " is the input: name another file", 2);
    std::string unfit;
    for (const std::string& output : {line.output, line.depfile})
        if (!output.empty() && output_file(output, unfit).empty()) return fail(unfit, 1);
    const std::string folder = include_folder(words[0]);
    if (folder.empty())
        return fail("Penstock's headers are not beside the program: reinstall Penstock", 1);

    penstock::compiler::TransformOptions options;
    options.input = line.input;
    options.output = line.output;
    options.hoist = line.hoist;
    // -Wno-everything: the compilers of the output warn.
    options.arguments = {"-resource-dir",
                         PENSTOCK_CLANG_RESOURCES,
                         "-DPENSTOCK_COMPILER_TOOL",
                         "-include",
                         "penstock/language/cuda.h",
                         "-include",
                         "penstock/device/preemption.cuh",
                         "-Wno-everything",
                         "-fno-caret-diagnostics"};
    options.arguments.insert(options.arguments.end(), line.arguments.begin(), line.arguments.end());
    for (const std::string& one : {folder, folder + "/penstock/language/toolkit"})
        options.arguments.insert(options.arguments.end(), {"-I", one});
    const auto result = penstock::compiler::transform(options);
    if (!result.ok) return 1;
    std::string failed;
    if (!line.output.empty() && !write_file(line.output, result.text, failed))
        return fail(failed, 1);
    if (!line.depfile.empty() &&
        !write_file(line.depfile, make_rule(line.output, result.files), failed))
        return fail(failed, 1);
    if (line.json)
        std::cout << penstock::compiler::report_json(line.input, result.report);
    else if (line.report)
        std::cout << penstock::compiler::report_text(line.input, result.report);
    std::cout.flush();
    return std::cout ? 0 : fail("standard output cannot be written", 1);
}
