// Devices and streams: where kernels run.
//
// A Device is a GPU, or the CPU backend that takes the place of one. It is a handle: it may be
// copied, and any thread may use it. penstock::launch (kernel.h) launches kernels.
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

// A handle of a device. Copies stand for the same device.
class Device {
public:
    Device() = default;  // stands for no device: only assign to it

    // Opens a device.
    //   name     "auto" (a CUDA device if there is one that options.runs_kernels allows, else the
    //            CPU), "cpu", "cpu:N" (N blocks resident at once) or "cuda:N"; empty: the value of
    //            PENSTOCK_DEVICE, else "auto"
    //   options  see options.h
    // Any thread; blocks. A CUDA device loads every kernel of the program here, so that no launch
    // has to. Errors: EINVAL when the name has none of these forms; ENODEV when there is no such
    // device, with the reason; ENOMEM.
    [[nodiscard]] static Result<Device> open(const std::string& name = "",
                                             const DeviceOptions& options = {});

    [[nodiscard]] std::string name() const;  // "cpu:4", "cuda:0 NVIDIA H200"
    // Returns why "auto" chose the CPU ("dlopen: ... no CUDA driver ..."), or "" if it did not.
    [[nodiscard]] const std::string& why_not_gpu() const { return why_not_gpu_; }
    [[nodiscard]] bool host_addressable() const;  // the host can load and store device memory
    [[nodiscard]] unsigned permits() const;       // blocks that can be resident at once
    [[nodiscard]] bool huge_pages() const;        // CPU backend: device memory lies on huge pages
    [[nodiscard]] bool simulated() const;         // the link model paces copies
    [[nodiscard]] size_t free_memory() const;     // bytes of device memory that are free

    // Allocates `size` bytes of device memory, filled with zeros. The memory is aligned to 4 KiB,
    // and to 2 MiB from a size of 2 MiB on. Any thread; on CUDA the call may wait for running
    // kernels. Errors: ENOMEM; EINVAL for 0 bytes.
    [[nodiscard]] Result<void*> allocate(size_t size) const;
    // Allocates pinned host memory, with the same rules. GPU threads can address it: the host
    // pointer is also the device pointer.
    [[nodiscard]] Result<void*> allocate_pinned(size_t size) const;
    // Returns whether `address` lies in device or pinned memory, also of other libraries. On CUDA
    // the result is false for pageable host memory and for freed memory. The CPU backend cannot
    // tell and returns true.
    [[nodiscard]] bool knows(const void* address) const;
    // Frees memory of either kind; null is allowed. Synchronize the streams whose kernels use it
    // first.
    void free(void* pointer) const;

    // Returns the device's last message about a kernel that failed or does not progress: "kernel K,
    // block (x,y,z): ...". Empty when there is none.
    [[nodiscard]] std::string diagnosis() const;
    // Ends everything that runs: blocks stop at their next barrier or wait, and launches fail with
    // `cause`. The device cannot be used afterwards. Never blocks.
    void abort(Status cause) const;

    [[nodiscard]] const std::shared_ptr<backend::Device>& port() const { return port_; }

    // Wraps a backend device that is open already. For other parts of the library, and for tests
    // that wrap the port.
    explicit Device(std::shared_ptr<backend::Device> port) : port_(std::move(port)) {}

private:
    std::shared_ptr<backend::Device> port_;
    std::string why_not_gpu_;
};

// A queue of launches and copies that run in order. It can be moved, not copied. The destructor
// waits until the queue is empty. Only one thread at a time may add operations.
class Stream {
public:
    // Creates a stream of `device`.
    //   priority  blocks of a stream with a larger priority start first; CUDA clamps it to the
    //             range of the device
    // Errors: ENOMEM, and errors of the driver.
    [[nodiscard]] static Result<Stream> create(const Device& device, int priority = 0);
    Stream() = default;
    Stream(Stream&& other) noexcept;
    Stream& operator=(Stream&& other) noexcept;
    ~Stream();

    // Copies `size` bytes after all earlier operations of the stream. The addresses determine the
    // direction. Both ranges must stay valid until synchronize(). Does not block, except on CUDA
    // while kernels of this stream run: a copy queued behind them could stop kernels that wait for
    // files (README, "Limits").
    Status copy(void* to, const void* from, size_t size);
    // Sets `size` bytes of device or pinned memory to `value`. Ordering and blocking as for copy().
    Status fill(void* to, uint8_t value, size_t size);
    // Waits until the stream is empty, at most `limit`. Then the host sees all that the kernels and
    // copies wrote. Returns the first error since the last call. Errors: EFAULT when a kernel
    // faulted; EDEADLK when its barriers do not match; ETIMEDOUT at the limit, or when the watchdog
    // ended a kernel. For a kernel that failed the message names kernel, block and cause, as
    // Device::diagnosis() does.
    Status synchronize(std::chrono::nanoseconds limit = std::chrono::hours(24));
    // Returns whether no operation is left. Never blocks.
    [[nodiscard]] Result<bool> idle();

    [[nodiscard]] const Device& device() const { return device_; }
    [[nodiscard]] unsigned id() const { return id_; }

private:
    Device device_;
    unsigned id_ = 0;
};

// Opens the CUDA device whose memory contains `address`. Any library may have allocated it. The
// device need not run kernels of this program. The memory of the CPU backend is host memory and has
// no device here. While a copy of the result exists, later calls return the same device, in
// microseconds. Any thread; blocks. Errors: ENODEV when `address` is in host memory, in memory that
// was freed, or in none; else those of Device::open().
[[nodiscard]] Result<Device> device_of(const void* address);

// Returns one line for each device of this machine, best first. If there is no CUDA device,
// `why_no_gpu`, unless null, receives the reason. Opens the driver and the CPU backend: do not call
// it often.
[[nodiscard]] std::vector<std::string> list_devices(std::string* why_no_gpu = nullptr);

}  // namespace penstock
