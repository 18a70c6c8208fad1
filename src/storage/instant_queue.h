// A queue that performs each operation inside submit(), on the calling thread.
#pragma once

#include <utility>

#include "base/bounded.h"
#include "storage/storage.h"

namespace penstock::storage {

// `Move` performs one operation: Completion operator()(const Operation&).
template <class Move>
class InstantQueue final : public Queue {
public:
    explicit InstantQueue(uint32_t depth, Move move = {})
        : Queue(depth), move_(std::move(move)), completions_(depth) {}

    size_t submit(std::span<const Operation> operations) override {
        size_t taken = 0;
        for (; taken < operations.size() && outstanding() < depth(); ++taken)
            completions_.push(move_(operations[taken]));
        return taken;
    }

    size_t reap(std::span<Completion> out, bool /*wait*/) override {
        size_t count = 0;
        for (; count < out.size() && !completions_.empty(); ++count)
            out[count] = completions_.pop();
        return count;
    }

    [[nodiscard]] Completion submit_and_reap(const Operation& operation) override {
        return move_(operation);
    }

    [[nodiscard]] size_t outstanding() const override { return completions_.size(); }

private:
    Move move_;
    base::BoundedQueue<Completion> completions_;
};

}  // namespace penstock::storage
