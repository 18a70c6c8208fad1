// The public device and stream: opens a backend by its name, and forwards calls to it.
#include "penstock/device.h"

#include <cerrno>
#include <charconv>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "backend/backend.h"
#include "file/environment.h"
#include "file/file_service.h"
#include "file/launches.h"
#include "penstock/preemption.h"
#include "preemption/preemption.h"

namespace penstock {
namespace {

// Parses the number after "cpu:" or "cuda:". Returns false if it is not a number or out of range.
bool parse_number(std::string_view text, unsigned& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
}

Result<std::shared_ptr<backend::Device>> open_cpu(const DeviceOptions& options, unsigned permits) {
    backend::CpuOptions wanted;
    wanted.permits = permits;
    wanted.memory_size = options.memory_size;
    wanted.watchdog_seconds = options.watchdog_seconds;
    wanted.link_latency_us = options.link_latency_us;
    wanted.link_bandwidth_gbs = options.link_bandwidth_gbs;
    return backend::open_cpu(wanted);
}

Result<std::shared_ptr<backend::Device>> open_cuda(const DeviceOptions& options, unsigned ordinal,
                                                   bool need_kernels) {
    return backend::open_cuda(
        {.ordinal = static_cast<int>(ordinal),
         .need_kernels = need_kernels,
         .runs_kernels = options.runs_kernels,
         .second_context = options.second_context && file::environment_allows_second_context()});
}

Result<std::shared_ptr<backend::Device>> open_port(std::string_view name,
                                                   const DeviceOptions& options,
                                                   std::string* why_not_gpu) {
    unsigned number = 0;
    if (name == "auto") {
        auto gpu = open_cuda(options, 0, options.runs_kernels);
        if (gpu.ok()) return gpu;
        *why_not_gpu = gpu.status().message();
        return open_cpu(options, options.permits);
    }
    if (name == "cpu") return open_cpu(options, options.permits);
    if (name.starts_with("cpu:") && parse_number(name.substr(4), number) && number > 0) {
        return open_cpu(options, number);
    }
    if (name == "cuda") return open_cuda(options, 0, false);
    if (name.starts_with("cuda:") && parse_number(name.substr(5), number))
        return open_cuda(options, number, false);
    return Status{EINVAL, "device", "not auto, cpu, cpu:N (N from 1) or cuda:N"};
}

backend::Deadline deadline_after(std::chrono::nanoseconds limit) {
    return std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
}

}  // namespace

Result<Device> Device::open(const std::string& name, const DeviceOptions& options) {
    const std::string_view wish = file::environment("PENSTOCK_DEVICE");
    const std::string chosen(!name.empty() ? name : !wish.empty() ? wish : "auto");
    std::string why_not_gpu;
    auto port = open_port(chosen, options, &why_not_gpu);
    if (!port.ok() && port.status().error_number() == EINVAL && name.empty())
        return Status{EINVAL, "PENSTOCK_DEVICE", port.status().text()};
    if (!port.ok()) return port.status();
    Device device(file::with_services(std::move(port.value())));
    device.why_not_gpu_ = std::move(why_not_gpu);
    return device;
}

std::string Device::name() const { return port_->properties().name; }
bool Device::host_addressable() const { return port_->properties().host_addressable; }
bool Device::knows(const void* address) const { return port_->knows(address); }
unsigned Device::permits() const { return port_->properties().permit_count; }
bool Device::huge_pages() const { return port_->properties().huge_pages; }
bool Device::simulated() const { return port_->properties().simulated_link; }
size_t Device::free_memory() const { return port_->free_memory(); }
void Device::free(void* pointer) const { port_->free(pointer); }
std::string Device::diagnosis() const { return port_->diagnosis(); }
void Device::abort(Status cause) const { port_->abort(cause); }

Result<void*> Device::allocate(size_t size) const {
    void* memory = nullptr;
    if (Status status = port_->allocate(size, backend::Memory::kDevice, &memory); !status.ok())
        return status;
    return memory;
}

Result<void*> Device::allocate_pinned(size_t size) const {
    void* memory = nullptr;
    if (Status status = port_->allocate(size, backend::Memory::kPinned, &memory); !status.ok())
        return status;
    return memory;
}

Result<Stream> Stream::create(const Device& device, int priority) {
    Stream stream;
    if (Status status = device.port()->create_stream(priority, &stream.id_); !status.ok())
        return status;
    stream.device_ = device;
    return stream;
}

Stream::Stream(Stream&& other) noexcept
    : device_(std::move(other.device_)), id_(std::exchange(other.id_, 0)) {}

Stream& Stream::operator=(Stream&& other) noexcept {
    if (this == &other) return *this;
    if (id_ != 0) (void)device_.port()->destroy_stream(id_);
    device_ = other.device_;
    id_ = std::exchange(other.id_, 0);
    return *this;
}

Stream::~Stream() {
    if (id_ != 0) (void)device_.port()->destroy_stream(id_);
}

Status Stream::copy(void* to, const void* from, size_t size) {
    return device_.port()->copy(id_, to, from, size);
}
Status Stream::fill(void* to, uint8_t value, size_t size) {
    return device_.port()->fill(id_, to, value, size);
}

Status Stream::synchronize(std::chrono::nanoseconds limit) {
    return device_.port()->synchronize(id_, deadline_after(limit));
}

Result<bool> Stream::idle() {
    bool idle = false;
    if (Status status = device_.port()->query(id_, &idle); !status.ok()) return status;
    return idle;
}

Status launch_request(Stream& stream, LaunchRequest request) {
    backend::Device& device = *stream.device().port();
    file::tell_launch(device, stream.id(), request);
    if (const PreemptibleEntry* entry = find_preemptible(request.function); entry != nullptr) {
        auto preemption = file::preemption_of(&device);
        if (preemption.ok())
            return preemption.value()->launch(stream.id(), *entry, std::move(request));
        if (preemption.status().error_number() != ENOTSUP) return preemption.status();
    }
    return device.launch(stream.id(), std::move(request));
}

Result<Device> device_of(const void* address) {
    auto ordinal = backend::cuda_device_of(address);
    if (!ordinal.ok()) return ordinal.status();
    // Never destroyed: other threads may transfer while the program ends.
    static auto& mutex = *new std::mutex;
    static auto& opened = *new std::map<int, std::weak_ptr<backend::Device>>;
    std::lock_guard lock(mutex);
    if (auto port = opened[ordinal.value()].lock()) return Device(std::move(port));
    auto device = Device::open("cuda:" + std::to_string(ordinal.value()), {.runs_kernels = false});
    if (device.ok()) opened[ordinal.value()] = device.value().port();
    return device;
}

std::vector<std::string> list_devices(std::string* why_no_gpu) {
    std::vector<std::string> devices = backend::list_cuda(why_no_gpu);
    if (auto cpu = backend::open_cpu({}); cpu.ok())
        devices.push_back(cpu.value()->properties().name);
    return devices;
}

}  // namespace penstock
