// Implements the backend's port for a CUDA device. docs/design/0002-two-compilers.md says how
// kernels get here.
//
// Kernels run on the GPU on their own, so blocks need no help, and the host never wakes a block.
// The host cannot address device memory. Any thread.
#pragma once

#include <future>
#include <memory>
#include <mutex>

#include "backend/backend.h"
#include "backend/cuda/allocations.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels.h"
#include "backend/cuda/sleepers.h"
#include "backend/cuda/stream_table.h"

namespace penstock::backend::cuda {

// The limits of a launch, in the order x, y, z.
struct ShapeLimits {
    unsigned grid[3] = {}, block[3] = {};
};

class CudaDevice final : public Device {
public:
    static Result<std::shared_ptr<Device>> open(const Driver& driver, const CudaOptions& options);
    ~CudaDevice() override;

    [[nodiscard]] const Properties& properties() const override { return properties_; }

    Status allocate(size_t size, Memory memory, void** out) override;
    void free(void* pointer) override;
    [[nodiscard]] size_t free_memory() const override;
    Status pin(void* memory, size_t size) override;
    void unpin(void* memory) override;
    [[nodiscard]] bool host_can_address(const void* address) const override;
    [[nodiscard]] bool knows(const void* address) const override;

    Status create_stream(int priority, StreamId* out) override;
    Status create_copy_stream(StreamId* out) override;
    Status destroy_stream(StreamId id) override;
    Status queued_work(std::span<const uintptr_t> streams,
                       std::shared_ptr<QueuedWork>* out) override;
    Status launch(StreamId id, LaunchRequest request) override;
    Status copy(StreamId id, void* to, const void* from, size_t size) override;
    Status copy_all(StreamId id, std::span<const CopyPart> parts) override;
    Status fill(StreamId id, void* to, uint8_t value, size_t size) override;
    Status write_value(StreamId id, uint64_t* address, uint64_t value) override;
    Status announce(StreamId id, uint64_t* address, uint64_t value) override;
    Status synchronize(StreamId id, Deadline deadline) override;
    Status query(StreamId id, bool* idle) override;

    [[nodiscard]] bool kernels_in_flight() const override;
    [[nodiscard]] bool kernels_seen_in_flight() const override;
    [[nodiscard]] unsigned busy_streams() const override;
    [[nodiscard]] uint64_t longest_copy_call_ns(uint64_t now_ns) const override;
    void poll() override;

    Status add_help(Help) override { return {}; }
    void remove_help(void*) override {}
    void notify(const uint64_t* address, size_t count) override;
    // `address` must be in host memory: pinned, or any that the GPU does not write.
    void wait_changed(const uint64_t* address, uint64_t seen,
                      std::chrono::nanoseconds limit) override;

    [[nodiscard]] std::string diagnosis() const override { return context_->diagnosis(); }
    // Prevents further launches. Kernels end by the abort word that their waits read; the owner of
    // that word sets it.
    void abort(Status cause) override { context_->abort(cause); }
    Status abort_cause() const override { return context_->abort_cause(); }
    // No stream is held: a kernel holds its own (preemption/preemption.h). So the device ends.
    void end_hold(const uint64_t* /*address*/, Status cause) override {
        if (!cause.ok()) context_->abort(cause);
    }

private:
    explicit CudaDevice(std::unique_ptr<Context> context) : context_(std::move(context)) {}

    Status read_properties(int ordinal);
    Status warm_up();
    Status warm_up(StreamId stream, void* there, void* pinned);
    Status prepare_kernels();
    void begin_second_context();
    Status make_second_context();
    [[nodiscard]] Status check_shape(const Kernel& kernel, const LaunchShape& shape) const;
    [[nodiscard]] std::string kernels_not_done() const;

    // In the order in which they are needed: the last one is destroyed first.
    std::unique_ptr<Context> context_;
    std::unique_ptr<Context> second_context_;  // null: not wanted or not possible
    Properties properties_;
    ShapeLimits shape_limits_;
    Allocations::Abilities can_;
    StreamTable streams_;
    StreamId own_stream_ = 0;  // for zeroing memory and warming up
    std::unique_ptr<Allocations> allocations_;
    std::unique_ptr<Kernels> kernels_;
    Sleepers sleepers_;
    // The second context is made while the opening thread does other work. Copy streams wait for
    // it.
    bool wants_second_context_ = true;
    std::once_flag prepare_once_;
    Status prepared_;
    std::shared_future<Status> second_context_made_;
};

}  // namespace penstock::backend::cuda
