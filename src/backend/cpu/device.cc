// The CPU backend's device: combines the arena and the scheduler.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "backend/backend.h"
#include "backend/cpu/arena.h"
#include "backend/cpu/crash_report.h"
#include "backend/cpu/parking.h"
#include "backend/cpu/scheduler.h"

namespace penstock::backend {
namespace {

using cpu::Arena;
using cpu::CopyJob;
using cpu::LinkModel;
using cpu::Scheduler;

constexpr unsigned kPermitsMax = 1024;
constexpr size_t kMemoryDefaultMax = size_t{4} << 30;

class CpuDevice final : public Device {
public:
    CpuDevice(Properties properties, std::shared_ptr<Arena> arena,
              std::shared_ptr<Scheduler> scheduler)
        : properties_(std::move(properties)),
          arena_(std::move(arena)),
          scheduler_(std::move(scheduler)) {}
    ~CpuDevice() override { scheduler_->close(); }

    const Properties& properties() const override { return properties_; }
    Status allocate(size_t size, Memory memory, void** out) override {
        return arena_->allocate(size, memory, out);
    }
    void free(void* pointer) override { arena_->free(pointer); }
    size_t free_memory() const override { return arena_->free_size(); }

    Status create_stream(int priority, StreamId* out) override {
        return scheduler_->create_stream(priority, out);
    }
    Status destroy_stream(StreamId stream) override { return scheduler_->destroy_stream(stream); }
    Status launch(StreamId stream, LaunchRequest request) override {
        return scheduler_->launch(stream, std::move(request));
    }
    Status copy(StreamId stream, void* to, const void* from, size_t size) override {
        return scheduler_->copy(stream, {CopyJob::Kind::kCopy, to, from, size, 0});
    }
    Status copy_words(StreamId stream, uint64_t* to, const uint64_t* from, size_t count) override {
        return scheduler_->copy(stream,
                                {CopyJob::Kind::kCopyWords, to, from, count * sizeof *to, 0});
    }
    Status fill(StreamId stream, void* to, uint8_t value, size_t size) override {
        return scheduler_->copy(stream, {CopyJob::Kind::kFill, to, nullptr, size, value});
    }
    Status write_value(StreamId stream, uint64_t* address, uint64_t value) override {
        return scheduler_->copy(stream, {CopyJob::Kind::kWriteValue, address, nullptr, 0, value});
    }
    Status hold(StreamId stream, const uint64_t* address) override {
        return scheduler_->hold(stream, address);
    }
    void end_hold(const uint64_t* address, Status status) override {
        scheduler_->end_hold(address, status);
    }
    const uint64_t* waiting_blocks() const override { return scheduler_->waiting_blocks(); }
    void set_bell(uint64_t* counter) override {
        bell_.store(counter, std::memory_order_release);  // partner: notify
    }
    Status synchronize(StreamId stream, Deadline deadline) override {
        return scheduler_->synchronize(stream, deadline);
    }
    Status query(StreamId stream, bool* idle) override { return scheduler_->query(stream, idle); }

    bool kernels_in_flight() const override { return scheduler_->kernels_in_flight(); }
    uint64_t failed_launches() const override { return scheduler_->failed_launches(); }
    void poll() override {}
    Status add_help(Help help) override { return scheduler_->add_help(help); }
    void remove_help(void* context) override { scheduler_->remove_help(context); }
    bool help() override { return scheduler_->help(); }
    void notify(const uint64_t* address, size_t count) override {
        cpu::notify_addresses(address, count);
        uint64_t* const bell = bell_.load(std::memory_order_acquire);
        if (bell == nullptr) return;
        std::atomic_ref(*bell).fetch_add(1, std::memory_order_release);
        cpu::ring_address(bell);
    }
    void ring(const uint64_t* address) override { cpu::ring_address(address); }
    void wait_changed(const uint64_t* address, uint64_t seen,
                      std::chrono::nanoseconds limit) override {
        cpu::sleep_until_rung(address, seen, limit);
    }
    std::string diagnosis() const override { return scheduler_->diagnosis(); }
    void abort(Status cause) override { scheduler_->abort(cause); }

private:
    const Properties properties_;
    const std::shared_ptr<Arena> arena_;
    const std::shared_ptr<Scheduler> scheduler_;
    std::atomic<uint64_t*> bell_{nullptr};
};

size_t default_memory_size() {
    size_t ram = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) *
                 static_cast<size_t>(sysconf(_SC_PAGESIZE));
    return std::min(ram / 4, kMemoryDefaultMax);
}

}  // namespace

Result<std::shared_ptr<Device>> open_cpu(const CpuOptions& options) {
    unsigned permits = options.permits != 0 ? options.permits
                                            : std::max(1u, std::thread::hardware_concurrency());
    if (permits > kPermitsMax) return Status(EINVAL, "open_cpu", "more than 1024 permits");
    auto arena = Arena::open(options.memory_size != 0 ? options.memory_size
                                                      : default_memory_size());
    if (!arena.ok()) return arena.status();
    LinkModel link{options.link_latency_us, options.link_bandwidth_gbs};
    cpu::install_crash_report();
    auto scheduler = std::make_shared<Scheduler>(permits, options.watchdog_seconds, link,
                                                 arena.value());
    Properties properties;
    properties.name = "cpu:" + std::to_string(permits);
    properties.host_addressable = true;
    properties.simulated_link = link.on();
    properties.permit_count = permits;
    properties.threads_per_block_max = cpu::kLanesMax;
    properties.shared_size_max = cpu::kDynamicSharedMax;
    properties.memory_size = arena.value()->size();
    properties.huge_pages = arena.value()->huge_pages();
    return std::shared_ptr<Device>(
        std::make_shared<CpuDevice>(std::move(properties), arena.value(), std::move(scheduler)));
}

}  // namespace penstock::backend
