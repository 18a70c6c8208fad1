// This program as a child process, for work that must not share a process with the measured runs.
//
// One thread.
#pragma once

#include <string>

namespace penstock::bench {

// Runs this program again, with `words` in the environment variable `variable`, which tells the
// child its work. `wrapper` goes before the program's path ("" or "valgrind ..."). Returns what the
// child prints to standard output and error; empty: it failed.
[[nodiscard]] std::string run_self(const std::string& variable, const std::string& words,
                                   const std::string& wrapper);

}  // namespace penstock::bench
