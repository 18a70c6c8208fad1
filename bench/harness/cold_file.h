// A file of known bytes that the OS has nothing of at the start of each run. One thread.
#pragma once

#include "bench/harness/cache_state.h"
#include "bench/harness/test_file.h"

namespace penstock::bench {

class ColdFile {
public:
    explicit ColdFile(uint64_t size) : file_(size), state_(file_), cold_(state_.pages(), 0) {}

    [[nodiscard]] const TestFile& file() const { return file_; }
    // False: some of it stayed cached.
    bool make_cold() { return state_.set(cold_); }

private:
    TestFile file_;
    CacheState state_;
    PageMap cold_;
};

}  // namespace penstock::bench
