// The command line of penstock-preempt: its own options, and those of g++ and nvcc.
#pragma once

#include <string>
#include <vector>

namespace penstock::compiler {

struct CommandLine {
    std::string input, output, depfile, error;
    std::vector<std::string> arguments;  // for Clang
    bool report = false, hoist = false, json = false, help = false;
};

// Returns the options, or `error`: what is wrong, and what to do.
CommandLine parse_command_line(const std::vector<std::string>& words);

extern const char* const kUsage;

}  // namespace penstock::compiler
