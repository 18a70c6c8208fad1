// Opens a CUDA device: checks its abilities and limits. Everything that the driver loads or
// allocates at a first use is done here, before a kernel runs that the host must serve.
#include <cstdio>
#include <system_error>
#include <thread>
#include <vector>

#include "backend/cuda/device.h"
#include "base/units.h"

namespace penstock::backend {
namespace cuda {
namespace {

constexpr size_t kNameSizeMax = 128;
constexpr auto kWarmUpLimit = std::chrono::seconds(60);
constexpr size_t kWarmUpSize = base::kMiB;
constexpr size_t kWarmUpSizes[] = {kWarmUpSize / 2, 4 * base::kKiB, 8, 3};

Status read_attribute(const Driver& driver, DeviceHandle device, Attribute attribute,
                      unsigned* out) {
    int value = 0;
    const int code = driver.device_attribute(&value, attribute, device);
    *out = value < 0 ? 0 : static_cast<unsigned>(value);
    return status_of(code, driver.device_attribute.name);
}

// Returns the device's name, or "unknown" if the driver does not report it.
std::string read_name(const Driver& driver, DeviceHandle device) {
    char name[kNameSizeMax] = "";
    if (driver.device_name(name, sizeof name, device) != kSuccess || *name == '\0')
        return "unknown";
    name[kNameSizeMax - 1] = '\0';
    return name;
}

// An ability that this backend requires, and the message for a device without it.
struct Need {
    Attribute attribute;
    const char* text;
};
constexpr Need kNeeds[] = {
    {kUnifiedAddressing, "the device has no unified addressing"},
    {kCanMapHostMemory, "the device's threads cannot address host memory"},
    {kCan64BitStreamWrites, "the device cannot store 64-bit values in stream order"},
};
constexpr unsigned kCapabilityMin = 75;  // compute capability 7.5, times 10

}  // namespace

Status CudaDevice::read_properties(int ordinal) {
    const Driver& driver = context_->driver();
    const DeviceHandle device = context_->device();
    unsigned value = 0;
    for (const Need& need : kNeeds) {
        if (Status status = read_attribute(driver, device, need.attribute, &value); !status.ok()) {
            return status;
        }
        if (value == 0) return {ENOTSUP, "open_cuda", need.text};
    }
    unsigned major = 0, minor = 0, processors = 0, blocks = 0, shared = 0, can_register = 0,
             can_map = 0;
    const std::pair<Attribute, unsigned*> wanted[] = {
        {kCapabilityMajor, &major},
        {kCapabilityMinor, &minor},
        {kMultiprocessorCount, &processors},
        {kBlocksPerMultiprocessorMax, &blocks},
        {kSharedSizeMaxOptin, &shared},
        {kThreadsPerBlockMax, &properties_.threads_per_block_max},
        {kCanUseHostPointerForRegistered, &can_register},
        {kCanMapMemory, &can_map},
        {kGridDimensionXMax, &shape_limits_.grid[0]},
        {kGridDimensionYMax, &shape_limits_.grid[1]},
        {kGridDimensionZMax, &shape_limits_.grid[2]},
        {kBlockDimensionXMax, &shape_limits_.block[0]},
        {kBlockDimensionYMax, &shape_limits_.block[1]},
        {kBlockDimensionZMax, &shape_limits_.block[2]},
    };
    for (const auto& [attribute, out] : wanted) {
        if (Status status = read_attribute(driver, device, attribute, out); !status.ok())
            return status;
    }
    if (major * 10 + minor < kCapabilityMin) {
        return {ENOTSUP, "open_cuda", "the device is older than compute capability 7.5"};
    }
    can_ = {.can_register = can_register != 0, .can_map = can_map != 0};
    properties_.permit_count = processors * blocks;
    properties_.shared_size_max = shared;
    properties_.name = "cuda:" + std::to_string(ordinal) + " " + read_name(driver, device);
    return status_of(driver.device_memory(&properties_.memory_size, device),
                     driver.device_memory.name);
}

// At their first use, the driver loads its own kernels for fills and copies within the device, and
// sets up its copy channels. That may wait for running kernels.
Status CudaDevice::warm_up() {
    void* memory = nullptr;
    void* pinned = nullptr;
    Status status = allocate(2 * kWarmUpSize, Memory::kDevice, &memory);
    if (status.ok()) status = allocate(kWarmUpSize, Memory::kPinned, &pinned);
    auto* there = static_cast<char*>(memory);
    for (const size_t size : kWarmUpSizes) {
        const size_t skew = size % 8 == 0 ? 0
                                          : 1;  // aligned and not: the driver has different kernels
        if (status.ok()) status = fill(own_stream_, there + skew, 0, size);
        if (status.ok()) status = copy(own_stream_, there + kWarmUpSize, there + skew, size);
    }
    if (status.ok()) status = warm_up(own_stream_, memory, pinned);
    free(pinned);
    free(memory);
    return status;
}

// Uses what a copy stream does: copies between pinned memory and the device, and stores.
Status CudaDevice::warm_up(StreamId stream, void* there, void* pinned) {
    Status status;
    for (const size_t size : kWarmUpSizes) {
        auto* at = static_cast<char*>(there) + (size % 8 == 0 ? 0 : 1);
        if (status.ok()) status = copy(stream, at, pinned, size);
        if (status.ok()) status = copy(stream, pinned, at, size);
    }
    const CopyPart parts[] = {{there, pinned, kWarmUpSizes[1]},
                              {static_cast<char*>(there) + kWarmUpSizes[1], pinned, 8}};
    if (status.ok()) status = copy_all(stream, parts);
    if (status.ok()) status = write_value(stream, static_cast<uint64_t*>(there), 0);
    if (status.ok()) status = write_value(stream, static_cast<uint64_t*>(pinned), 0);
    if (status.ok()) status = synchronize(stream, std::chrono::steady_clock::now() + kWarmUpLimit);
    return status;
}

// Prepares a device for kernels that use files. Any thread; done once.
Status CudaDevice::prepare_kernels() {
    std::call_once(prepare_once_, [this] {
        begin_second_context();
        prepared_ = kernels_->load_all();
    });
    return prepared_;
}

// Runs on its own thread, because it takes 0.1 to 0.2 s.
void CudaDevice::begin_second_context() {
    std::packaged_task<Status()> make([this] { return make_second_context(); });
    second_context_made_ = make.get_future().share();
    try {
        std::thread(std::move(make)).detach();
    } catch (const std::system_error&) {
        std::promise<Status> none;
        none.set_value({EAGAIN, "threads", "no more threads are to be had"});
        second_context_made_ = none.get_future().share();
    }
}

Status CudaDevice::make_second_context() {
    if (!wants_second_context_) return {ENOTSUP, "cuCtxCreate", "no second context is wanted"};
    if (!can_.can_map) return {ENOTSUP, "cuMemMap", "no memory that two contexts reach"};
    auto made = Context::create(context_->driver(), context_->device());
    if (!made.ok()) return made.status();
    second_context_ = std::move(made.value());
    StreamId stream = 0;
    void* memory = nullptr;
    void* pinned = nullptr;
    Status status = streams_.take(*second_context_, 0, &stream);
    if (status.ok()) status = allocate(kWarmUpSize, Memory::kServed, &memory);
    if (status.ok()) status = allocate(kWarmUpSize, Memory::kPinned, &pinned);
    if (status.ok()) status = warm_up(stream, memory, pinned);
    free(pinned);
    free(memory);
    if (stream != 0) static_cast<void>(destroy_stream(stream));
    return status;
}

Result<std::shared_ptr<Device>> CudaDevice::open(const Driver& driver, const CudaOptions& options) {
    DeviceHandle handle = 0;
    if (const int code = driver.device_get(&handle, options.ordinal); code != kSuccess) {
        return status_of(code, driver.device_get.name);
    }
    auto context = Context::retain(driver, handle);
    if (!context.ok()) return context.status();
    std::shared_ptr<CudaDevice> device(new CudaDevice(std::move(context.value())));
    Context& within = *device->context_;
    within.name_kernels_by([raw = device.get()] { return raw->kernels_not_done(); });

    Status status = device->read_properties(options.ordinal);
    if (status.ok()) status = device->create_stream(0, &device->own_stream_);
    if (!status.ok()) return status;
    device->allocations_ = std::make_unique<Allocations>(
        within, *device->streams_.find(device->own_stream_), device->can_);
    device->wants_second_context_ = options.second_context;
    device->kernels_ = std::make_unique<Kernels>(within, device->properties_.shared_size_max);
    if (options.runs_kernels) status = device->prepare_kernels();
    if (status.ok() && options.need_kernels) status = device->kernels_->any_usable();
    if (status.ok()) status = device->warm_up();
    if (!status.ok()) return status;
    return std::shared_ptr<Device>(std::move(device));
}

namespace {

std::string describe_device(const Driver& driver, int ordinal) {
    const std::string start = "cuda:" + std::to_string(ordinal) + " ";
    DeviceHandle device = 0;
    if (const int code = driver.device_get(&device, ordinal); code != kSuccess) {
        return start + driver.describe(code);
    }
    size_t size = 0;
    unsigned major = 0, minor = 0, processors = 0;
    const bool known = driver.device_memory(&size, device) == kSuccess &&
                       read_attribute(driver, device, kCapabilityMajor, &major).ok() &&
                       read_attribute(driver, device, kCapabilityMinor, &minor).ok() &&
                       read_attribute(driver, device, kMultiprocessorCount, &processors).ok();
    char rest[96] = "";
    if (known) {
        std::snprintf(rest, sizeof rest, ", %.1f GiB, compute capability %u.%u, %u SMs",
                      static_cast<double>(size) / static_cast<double>(base::kGiB), major, minor,
                      processors);
    }
    return start + read_name(driver, device) + rest;
}

// Asks the driver what lies at an address. A thread without a context asks in the primary context
// of the first device.
bool find_device(const Driver& driver, const void* address, int* ordinal) {
    unsigned type = 0;
    const auto ask = [&] {
        const auto pointer = reinterpret_cast<DevicePointer>(address);
        const int code = driver.pointer_attribute(&type, kMemoryTypeOfPointer, pointer);
        return code != kSuccess ? code
                                : driver.pointer_attribute(ordinal, kOrdinalOfPointer, pointer);
    };
    ContextHandle own = nullptr;
    DeviceHandle first = 0;
    if (driver.get_current(&own) != kSuccess) return false;
    if (own != nullptr) return ask() == kSuccess && type == kMemoryTypeDevice;
    if (driver.device_get(&first, 0) != kSuccess) return false;
    auto context = Context::retain(driver, first);
    return context.ok() && context.value()->within(ask) == kSuccess && type == kMemoryTypeDevice;
}

}  // namespace
}  // namespace cuda

Result<std::shared_ptr<Device>> open_cuda(const CudaOptions& options) {
    std::string why;
    auto driver = cuda::open_driver(&why);
    if (!driver.ok()) return driver.status();
    if (options.ordinal < 0) return Status(ENODEV, "open_cuda", "no CUDA device of this number");
    return cuda::CudaDevice::open(*driver.value(), options);
}

Result<int> cuda_device_of(const void* address) {
    std::string why;
    auto driver = cuda::open_driver(&why);
    if (!driver.ok()) return driver.status();
    int ordinal = 0;
    if (cuda::find_device(*driver.value(), address, &ordinal)) return ordinal;
    return Status(ENODEV, "cuda_device_of", "the address is not in the memory of a CUDA device");
}

std::vector<std::string> list_cuda(std::string* why_none) {
    std::string why;
    auto driver = cuda::open_driver(&why);
    std::vector<std::string> lines;
    if (driver.ok()) {
        int count = 0;
        const int code = driver.value()->device_count(&count);
        if (code != cuda::kSuccess) why = driver.value()->describe(code);
        for (int ordinal = 0; ordinal < count; ++ordinal) {
            lines.push_back(cuda::describe_device(*driver.value(), ordinal));
        }
        if (lines.empty() && why.empty()) why = "the CUDA driver knows no device";
    }
    if (why_none != nullptr) *why_none = lines.empty() ? why : "";
    return lines;
}

}  // namespace penstock::backend
