// Runs another program to its end, for benchmarks of whole commands. One thread.
#pragma once

#include <string>
#include <vector>

namespace penstock::bench {

struct CommandResult {
    double seconds = 0;  // from start to end
    int exit_code = 0;   // 127: there is no such program
    std::string first_line;
};

// `words`: the program, searched on PATH, and its arguments. What it writes to standard error is
// seen by who watches. Ends the benchmark where the program is ended by a signal.
CommandResult run_command(const std::vector<std::string>& words);

}  // namespace penstock::bench
