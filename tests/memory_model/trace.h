// How the explorer came to the state that it is in, as text for the report of an error.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "memory_model/program.h"

namespace penstock::memory_model {

class Trace {
public:
    explicit Trace(const Program& program) : program_(program) {}

    void add(int thread, const Operation& operation, bool deferred, bool performed) {
        lines_.push_back({thread, operation, 0, deferred, performed, -1, false});
    }
    void add_cell(int thread, int cell, uint64_t value, bool written) {
        lines_.push_back({thread, {}, value, false, false, cell, written});
    }
    void result(size_t line, uint64_t value) { lines_[line].result = value; }
    size_t size() const { return lines_.size(); }
    void resize(size_t size) { lines_.resize(size); }
    std::string text() const;

private:
    struct Line {
        int thread = 0;
        Operation operation;
        uint64_t result = 0;
        bool deferred = false, performed = false;
        int cell = -1;
        bool written = false;
    };
    std::string describe(const Line& line) const;

    const Program& program_;
    std::vector<Line> lines_;
};

}  // namespace penstock::memory_model
