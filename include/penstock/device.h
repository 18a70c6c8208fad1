// Devices and streams: where kernels run.
//
// A Device is a GPU, or the CPU backend that stands for one; a handle that may be copied and used
// by any thread. Kernels are launched with penstock::launch (kernel.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "penstock/kernel.h"
#include "penstock/options.h"
#include "penstock/status.h"

namespace penstock {

namespace backend {
class Device;
}

class Device {
public:
    Device() = default;  // no device: only assign to it

    // Opens a device.
    //   name     "auto" (a CUDA device where there is one that options.runs_kernels allows, else
    //            the CPU), "cpu", "cpu:N" (N blocks resident at once), "cuda:N"; empty: what
    //            PENSTOCK_DEVICE says, else "auto"
    //   options  see options.h
    // Any thread; blocks: a CUDA device loads every kernel of the program here, so that no launch
    // does. EINVAL: no such form; ENODEV: no such device, with the reason; ENOMEM.
    [[nodiscard]] static Result<Device> open(const std::string& name = "",
                                             const DeviceOptions& options = {});

    [[nodiscard]] std::string name() const;  // "cpu:4", "cuda:0 NVIDIA H200"
    // Why "auto" took the CPU: "dlopen: ... no CUDA driver ..."; empty when it did not.
    [[nodiscard]] const std::string& why_not_gpu() const { return why_not_gpu_; }
    [[nodiscard]] bool host_addressable() const;  // the host may load and store device memory
    [[nodiscard]] unsigned permits() const;       // blocks that can be resident at once
    [[nodiscard]] bool huge_pages() const;        // CPU backend: device memory lies on huge pages
    [[nodiscard]] bool simulated() const;         // copies are paced by the link model
    [[nodiscard]] size_t free_memory() const;     // bytes of device memory

    // `size` bytes of device memory, zeroed, aligned to 4 KiB (to 2 MiB from 2 MiB on). Any thread;
    // on CUDA it may wait for what runs. ENOMEM; EINVAL: 0 bytes.
    [[nodiscard]] Result<void*> allocate(size_t size) const;
    // The same in pinned host memory that GPU threads can address: host pointer and device pointer
    // are one.
    [[nodiscard]] Result<void*> allocate_pinned(size_t size) const;
    // Whether `address` lies in device or pinned memory, of whoever: false on CUDA for pageable
    // host memory and for what was given back. The CPU backend cannot tell, and says true.
    [[nodiscard]] bool knows(const void* address) const;
    // Gives either kind back; null is allowed. Synchronize the streams whose kernels use it first.
    void free(void* pointer) const;

    // What the device said last about a kernel that failed or stands still: "kernel K, block
    // (x,y,z): ..."; empty: nothing.
    [[nodiscard]] std::string diagnosis() const;
    // Ends everything that runs: blocks stop at their next barrier or wait, launches fail with
    // `cause`. The device is of no use afterwards. Never blocks.
    void abort(Status cause) const;

    [[nodiscard]] const std::shared_ptr<backend::Device>& port() const { return port_; }

    // A handle on a device that is open already: for other rooms of the library, and tests that
    // wrap the port.
    explicit Device(std::shared_ptr<backend::Device> port) : port_(std::move(port)) {}

private:
    std::shared_ptr<backend::Device> port_;
    std::string why_not_gpu_;
};

// A queue of launches and copies that run in order. Move-only; the destructor waits for what is in
// it. One thread at a time puts operations in.
class Stream {
public:
    // `priority`: blocks of a stream with a larger one start first. On CUDA clamped to what the
    // device offers. ENOMEM and errors of the driver.
    [[nodiscard]] static Result<Stream> create(const Device& device, int priority = 0);
    Stream() = default;
    Stream(Stream&& other) noexcept;
    Stream& operator=(Stream&& other) noexcept;
    ~Stream();

    // Copies `size` bytes behind what is in the stream; the addresses tell the direction. Both ends
    // must stay until synchronize. Does not wait, but on CUDA for kernels of this stream: queued
    // behind them it could stop those that wait for files (README, "Limits").
    Status copy(void* to, const void* from, size_t size);
    // Sets `size` bytes of device or pinned memory to `value`, likewise.
    Status fill(void* to, uint8_t value, size_t size);
    // Waits until all is done, at most `limit`; then the host sees what kernels and copies wrote.
    // Returns the first error since the last call: EFAULT: a kernel faulted; EDEADLK: its barriers
    // do not match; ETIMEDOUT: the limit, or the watchdog. Of a kernel that failed the message
    // names kernel, block and cause, as Device::diagnosis() does.
    Status synchronize(std::chrono::nanoseconds limit = std::chrono::hours(24));
    // Whether nothing is left to do; never waits.
    [[nodiscard]] Result<bool> idle();

    [[nodiscard]] const Device& device() const { return device_; }
    [[nodiscard]] unsigned id() const { return id_; }

private:
    Device device_;
    unsigned id_ = 0;
};

// One line for each device of this machine, best first. `why_no_gpu`, if not null, gets the reason
// when there is no CUDA device. Opens the driver and the CPU backend: not for hot paths.
[[nodiscard]] std::vector<std::string> list_devices(std::string* why_no_gpu = nullptr);

}  // namespace penstock
