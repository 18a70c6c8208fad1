// What every benchmark program shares: its arguments, runs taken in turn, and the report as JSON.
//
// The JSON is read by tools/people who compute ratios from raw pairs, so nothing is summarised away
// here: see CONTRIBUTING.md, "Benchmarks". One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "penstock/device.h"

namespace penstock::bench {

struct Arguments {
    bool smoke = false;  // smallest sizes and one pair: only to see that it works
    bool full = false;   // the whole sweep
    unsigned pairs = 15;
    std::string device = "cpu";
    std::string only;   // run only cases whose name contains this ("=NAME": is this)
    std::string json;   // file to write; empty: standard output
    std::string trace;  // file for a trace of the programs that write one; empty: none
};

// Whether a case was asked for.
[[nodiscard]] inline bool wanted(const Arguments& arguments, const std::string& name) {
    if (arguments.only.starts_with('=')) return name == arguments.only.substr(1);
    return name.find(arguments.only) != std::string::npos;
}

// Parses the command line; prints a line and ends the program with 2 where it is wrong, with 0
// after --help. `has_trace`: the program takes --trace.
Arguments parse_arguments(int argc, char** argv, const char* question, bool has_trace = false);

// One case against one baseline.
struct Row {
    std::string name;
    std::string against;
    std::string unit = "s";                        // "s", "share", "B/s" ...
    std::vector<std::pair<double, double>> pairs;  // case, baseline; in the order they ran
    uint64_t bytes = 0;                            // that one run of the case moved
    bool verified = false;  // bytes and cache state were checked in these very runs
    bool simulated = false;
    double cpu_seconds = 0;  // of all runs of the case
    std::string note;
};

// Runs `run` and `baseline` in turn, one pair to warm up and `count` that are kept. Each returns
// its figure. `prepare` comes before each of both, and its CPU seconds are nobody's.
std::vector<std::pair<double, double>> take_pairs(unsigned count,
                                                  const std::function<double()>& run,
                                                  const std::function<double()>& baseline,
                                                  double* cpu_seconds = nullptr,
                                                  const std::function<void()>& prepare = {});

// CPU seconds so far of this process and of the commands it has waited for.
double cpu_time();

// Seconds that `work` takes.
double timed(const std::function<void()>& work);

class Report {
public:
    Report(std::string bench, std::string question, const Arguments& arguments);
    void describe(const std::string& key, const std::string& value);  // adds to "environment"
    void add(Row row);  // prints the row's median ratio for who watches
    void write() const;

private:
    std::string bench_, question_;
    const Arguments arguments_;
    std::vector<std::pair<std::string, std::string>> environment_;
    std::vector<Row> rows_;
};

// Ends the program with 1 and "penstock-bench: text".
[[noreturn]] void fail(const std::string& text);
// The value, or fail().
template <class T>
T need(Result<T> result, const char* what) {
    if (!result.ok()) fail(std::string(what) + ": " + result.status().message());
    return std::move(result.value());
}
void need(const Status& status, const char* what);

}  // namespace penstock::bench
