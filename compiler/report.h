// What a transformation saves, for people and as JSON.
#pragma once

#include <string>
#include <vector>

namespace penstock::compiler {

struct ValueReport {
    std::string name, why;
    unsigned size = 0;           // bytes; 0: not saved
    bool if_read_short = false;  // saved only if the read is not as large as it
    std::string where;           // "thread", "block", "shared", or empty
};

// A place in the same list of statements where less would be saved.
struct CheaperPlace {
    unsigned line = 0;
    unsigned saves = 0;  // bytes of each thread
};

struct PointReport {
    unsigned number = 0, line = 0;
    std::string call;
    unsigned thread_bytes = 0, block_bytes = 0, shared_bytes = 0;
    bool dynamic_shared = false, dynamic_if_read_short = false;
    std::vector<ValueReport> values;
    std::vector<CheaperPlace> cheaper;
};

struct KernelReport {
    std::string name;
    std::vector<std::string> instances;  // as PENSTOCK_KERNEL names them
    unsigned line = 0;
    unsigned thread_words = 0, block_words = 0, shared_size = 0, parameter_bytes = 0;
    bool one_run = false;
    std::vector<PointReport> points;
};

std::string report_text(const std::string& file, const std::vector<KernelReport>& kernels);
std::string report_json(const std::string& file, const std::vector<KernelReport>& kernels);

}  // namespace penstock::compiler
