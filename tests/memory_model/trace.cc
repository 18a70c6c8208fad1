// See trace.h.
#include "memory_model/trace.h"

#include <cinttypes>
#include <cstdio>

namespace penstock::memory_model {

namespace {

const char* verb(Kind kind) {
    switch (kind) {
        case Kind::kLoad:
            return "load";
        case Kind::kStore:
            return "store";
        case Kind::kAdd:
            return "add";
        case Kind::kOr:
            return "or";
        case Kind::kAnd:
            return "and";
        case Kind::kExchangeIf:
            return "compare_exchange";
        case Kind::kChoose:
            return "choose";
        case Kind::kPause:
            return "pause";
    }
    return "?";
}

}  // namespace

std::string Trace::describe(const Line& line) const {
    char text[256];
    const char* name = program_.threads[line.thread].name.c_str();
    const Operation& operation = line.operation;
    if (line.cell >= 0) {
        std::snprintf(text, sizeof text, "  %-12s %s %s: %#" PRIx64, name,
                      line.written ? "writes" : "reads", program_.cell_names[line.cell].c_str(),
                      line.result);
        return text;
    }
    if (operation.kind == Kind::kChoose) {
        std::snprintf(text, sizeof text, "  %-12s chooses %" PRIu64, name, line.result);
        return text;
    }
    std::snprintf(text, sizeof text, "  %-12s %s%s %s%s%s %#" PRIx64 " if %#" PRIx64 ": %#" PRIx64,
                  name,
                  line.deferred    ? "defers "
                  : line.performed ? "performs deferred "
                                   : "",
                  verb(operation.kind), program_.word_names[operation.word].c_str(),
                  operation.acquire ? " acquire" : "", operation.release ? " release" : "",
                  operation.operand, operation.expected, line.result);
    return text;
}

std::string Trace::text() const {
    std::string text;
    for (const Line& line : lines_) text += describe(line) + "\n";
    return text;
}

}  // namespace penstock::memory_model
