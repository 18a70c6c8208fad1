// Transforms one file: parses it, and writes the text with the preemptible forms of its kernels.
#pragma once

#include <string>
#include <vector>

#include "compiler/report.h"

namespace penstock::compiler {

struct TransformOptions {
    std::string input, output;           // paths; an empty output: nothing is written
    std::vector<std::string> arguments;  // of the compiler: -I, -D, -std ...
    bool hoist = false;
};

struct TransformResult {
    bool ok = false;
    std::string text;
    std::vector<KernelReport> report;
    std::vector<std::string> files;  // that were read, for a dependency file
};

// Errors are printed to standard error as file:line:column. One thread.
TransformResult transform(const TransformOptions& options);

}  // namespace penstock::compiler
