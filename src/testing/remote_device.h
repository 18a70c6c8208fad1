// A CPU device that says the host cannot address its memory, as a GPU's: what serves it must go by
// staging, stream copies and stream-ordered stores. It counts them, and can make the n-th of them
// fail.
//
// What it cannot show is that no host code touches device memory: the addresses are good for both.
// Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>

#include "backend/backend.h"

namespace penstock::testing {

class RemoteDevice : public backend::Device {
public:
    explicit RemoteDevice(std::shared_ptr<backend::Device> inner);

    // The n-th copy of more than words from now on (1 is the next) fails with EIO, and all to the
    // same place behind it, lest trying again should hide it; 0: none.
    void fail_copy(int64_t n) {
        failing_place_ = nullptr;
        copies_until_failure_ = n;
    }
    // Whether it has.
    [[nodiscard]] bool copy_failed() const { return copies_until_failure_ == 0; }
    // The same for values that streams write.
    void fail_write(int64_t n) { writes_until_failure_ = n; }
    [[nodiscard]] uint64_t copy_count() const { return copy_count_; }
    [[nodiscard]] uint64_t write_count() const { return write_count_; }
    [[nodiscard]] uint64_t poll_count() const { return poll_count_; }

    [[nodiscard]] const backend::Properties& properties() const override { return properties_; }
    Status allocate(size_t size, backend::Memory memory, void** out) override;
    void free(void* pointer) override;
    [[nodiscard]] size_t free_memory() const override;
    [[nodiscard]] bool host_can_address(const void* address) const override;
    Status create_stream(int priority, backend::StreamId* out) override;
    Status destroy_stream(backend::StreamId stream) override;
    Status launch(backend::StreamId stream, LaunchRequest request) override;
    Status copy(backend::StreamId stream, void* to, const void* from, size_t size) override;
    Status copy_words(backend::StreamId stream, uint64_t* to, const uint64_t* from,
                      size_t count) override;
    Status fill(backend::StreamId stream, void* to, uint8_t value, size_t size) override;
    Status write_value(backend::StreamId stream, uint64_t* address, uint64_t value) override;
    Status synchronize(backend::StreamId stream, backend::Deadline deadline) override;
    Status query(backend::StreamId stream, bool* idle) override;
    [[nodiscard]] bool kernels_in_flight() const override;
    [[nodiscard]] uint64_t failed_launches() const override { return inner_->failed_launches(); }
    void poll() override;
    Status add_help(backend::Help help) override;
    void remove_help(void* context) override;
    void notify(const uint64_t* address, size_t count) override;
    void wait_changed(const uint64_t* address, uint64_t seen,
                      std::chrono::nanoseconds limit) override;
    [[nodiscard]] std::string diagnosis() const override;
    void abort(Status cause) override;

private:
    const std::shared_ptr<backend::Device> inner_;
    backend::Properties properties_;
    mutable std::mutex mutex_;
    std::map<const std::byte*, size_t> device_pieces_;  // sizes
    std::atomic<int64_t> copies_until_failure_{0}, writes_until_failure_{0};
    std::atomic<void*> failing_place_{nullptr};
    std::atomic<uint64_t> copy_count_{0}, write_count_{0}, poll_count_{0};
};

}  // namespace penstock::testing
