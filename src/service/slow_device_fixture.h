// A device whose streams move only when the test says so, and whose calls fail when the test says
// so.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace penstock::service {

// Streams that move only when the test says so. Its memory is the host's, which it hides unless a
// test wants it known.
class SlowDevice final : public backend::Device {
public:
    using StreamId = backend::StreamId;
    struct Operation {
        std::byte* to;
        const std::byte* from;  // null: a store of `value`
        size_t size;
        uint64_t value;
    };

    explicit SlowDevice(bool host_addressable = false) {
        properties_.name = "slow";
        properties_.host_addressable = host_addressable;
    }

    const backend::Properties& properties() const override { return properties_; }
    Status allocate(size_t size, backend::Memory, void** out) override {
        *out = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
        std::memset(*out, 0, size);
        return {};
    }
    void free(void* pointer) override { std::free(pointer); }
    size_t free_memory() const override { return size_t{1} << 30; }
    Status create_stream(int, StreamId* out) override {
        *out = static_cast<StreamId>(streams.size() + 1);
        streams[*out];
        return {};
    }
    Status destroy_stream(StreamId stream) override {
        while (step(stream)) {
        }
        return {};
    }
    Status launch(StreamId, LaunchRequest) override { return {ENOSYS, "launch", ""}; }
    Status copy(StreamId stream, void* to, const void* from, size_t size) override {
        if (prompt) {
            copy_sizes.push_back(size);
            std::memcpy(to, from, size);
            return {};
        }
        auto& operations = streams[stream];
        if (size <= kWholeSizeMax) {
            ++words_copies;
            // Among the operations of a stream, only a store of one word has a fence.
            const bool fenced = operations.empty() || operations.back().from == nullptr ||
                                operations.back().size <= kWholeSizeMax;
            EXPECT_TRUE(fenced) << "words behind a copy without a fence";
            operations.push_back(
                {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size, 0});
            return {};
        }
        copy_sizes.push_back(size);
        if (copy_sizes.size() == fail_copy) return {EIO, "copy", "as the test asked"};
        streams[stream].push_back(
            {static_cast<std::byte*>(to), static_cast<const std::byte*>(from), size, 0});
        return {};
    }
    Status fill(StreamId, void*, uint8_t, size_t) override { return {ENOSYS, "fill", ""}; }
    Status write_value(StreamId stream, uint64_t* address, uint64_t value) override {
        if (++write_calls == fail_write) return {EIO, "write_value", "as the test asked"};
        streams[stream].push_back({reinterpret_cast<std::byte*>(address), nullptr, 8, value});
        return {};
    }
    Status synchronize(StreamId, backend::Deadline) override {
        return prompt ? Status{} : Status{ENOSYS, "wait", ""};
    }
    Status query(StreamId stream, bool* idle) override {
        *idle = streams[stream].empty();
        return fail_query ? Status{EIO, "query", "as the test asked"} : Status{};
    }
    bool kernels_in_flight() const override { return true; }
    void poll() override {}
    Status add_help(backend::Help) override { return {}; }
    void remove_help(void*) override {}
    void notify(const uint64_t* words, size_t count) override {
        if (on_notify) on_notify(words, count);
    }
    void wait_changed(const uint64_t*, uint64_t, std::chrono::nanoseconds) override {}
    std::string diagnosis() const override { return ""; }
    void abort(Status) override {}

    // Performs the oldest operation of a stream. Returns false if there is none.
    bool step(StreamId stream) {
        auto& operations = streams[stream];
        if (operations.empty()) return false;
        const Operation operation = operations.front();
        operations.pop_front();
        const void* from = operation.from != nullptr ? operation.from
                                                     : static_cast<const void*>(&operation.value);
        std::memcpy(operation.to, from, operation.size);
        return true;
    }

    std::map<StreamId, std::deque<Operation>> streams;
    bool prompt = false;                  // copies are made at once
    std::vector<size_t> copy_sizes;       // of all copies requested
    size_t fail_copy = 0;                 // the n-th copy fails; 0: none
    int write_calls = 0, fail_write = 0;  // the n-th fails; 0: none
    int words_copies = 0;
    bool fail_query = false;
    std::function<void(const uint64_t* words, size_t count)> on_notify;

private:
    backend::Properties properties_;
};

}  // namespace penstock::service
