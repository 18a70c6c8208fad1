// What the workloads of I/O-driven preemption have in common: a run on a stream, and its check.
//
// The compute-only workloads and those that read files are mixed by tests and by the benchmark, so
// they share this interface. An object belongs to one thread; several objects may run at once, each
// on its own stream.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "penstock/device.h"
#include "penstock/file_system.h"
#include "penstock/status.h"

namespace penstock::workloads {

// Where workloads run, and the folder for their files. All three outlive the workloads.
struct Site {
    const Device* device = nullptr;
    FileSystem* files = nullptr;
    std::string folder;
};

// Which part of its work a run does. The parts are measured alone: their times are I and C of the
// model (I + C) / max(I, C).
enum class Part : uint8_t {
    kAll,
    kReads,    // the reads, with the computation left out
    kCompute,  // the computation, on bytes that lie in device memory before the run
};

class Workload {
public:
    virtual ~Workload() = default;

    // Adds to `stream` what gives every result and every buffer a value that a run does not leave.
    // To be called before each run, since a run starts from these values.
    virtual Status prepare(Stream& stream, Part part) = 0;
    // Adds the kernels of one run to `stream`.
    virtual Status launch(Stream& stream, Part part) = 0;
    // Waits for the stream, and counts the results of the last run that differ in any bit from the
    // reference, and reads that failed. Fails with the error of the kernels.
    [[nodiscard]] virtual Result<uint64_t> count_wrong(Stream& stream, Part part) = 0;

    // The file that the kernels read, or -1.
    [[nodiscard]] virtual Descriptor file() const { return -1; }
    // The bytes that the reads of one run ask for.
    [[nodiscard]] virtual uint64_t read_size() const { return 0; }
    // The blocks of one run, all kernels together.
    [[nodiscard]] virtual uint64_t block_count() const = 0;
};

// An array in device memory. It can be moved, not copied.
template <class T>
class DeviceArray {
public:
    DeviceArray() = default;
    DeviceArray(DeviceArray&& other) noexcept { swap(other); }
    DeviceArray& operator=(DeviceArray&& other) noexcept {
        swap(other);
        return *this;
    }
    ~DeviceArray() {
        if (data_ != nullptr) device_.free(data_);
    }

    // Takes the memory of `count` elements. ENOMEM.
    Status allocate(const Device& device, size_t count) {
        auto memory = device.allocate(count * sizeof(T));
        if (!memory.ok()) return memory.status();
        device_ = device;
        data_ = static_cast<T*>(memory.value());
        count_ = count;
        return {};
    }

    [[nodiscard]] T* data() const { return data_; }
    [[nodiscard]] size_t count() const { return count_; }
    [[nodiscard]] size_t size() const { return count_ * sizeof(T); }

    // `from` has count() elements and must not change until the stream is synchronized.
    Status upload(Stream& stream, const std::vector<T>& from) {
        return stream.copy(data_, from.data(), size());
    }
    // Waits for the stream and returns the elements.
    [[nodiscard]] Result<std::vector<T>> download(Stream& stream) const {
        std::vector<T> to(count_);
        if (const Status status = stream.copy(to.data(), data_, size()); !status.ok())
            return status;
        if (const Status status = stream.synchronize(); !status.ok()) return status;
        return to;
    }

private:
    void swap(DeviceArray& other) {
        std::swap(device_, other.device_);
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
    }

    Device device_;
    T* data_ = nullptr;
    size_t count_ = 0;
};

// Counts the elements that differ in any bit; arrays of different lengths differ in all.
template <class T>
[[nodiscard]] uint64_t count_different(const std::vector<T>& a, const std::vector<T>& b) {
    if (a.size() != b.size()) return std::max(a.size(), b.size());
    uint64_t different = 0;
    for (size_t i = 0; i < a.size(); ++i)
        different += std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]);
    return different;
}

// Deterministic draws for inputs: splitmix64. Equal seeds give equal inputs on every machine.
class Draw {
public:
    explicit Draw(uint64_t seed) : state_(seed) {}
    uint64_t word();
    // An integer in [0, limit).
    unsigned below(unsigned limit) { return static_cast<unsigned>(word() % limit); }
    // A multiple of 2^-24 in [0, 1).
    float unit() { return static_cast<float>(word() >> 40) * 0x1p-24F; }

private:
    uint64_t state_;
};

// A file that is written once and removed with the object, and its descriptor for kernels.
class InputFile {
public:
    InputFile() = default;
    InputFile(InputFile&& other) noexcept { swap(other); }
    InputFile& operator=(InputFile&& other) noexcept {
        swap(other);
        return *this;
    }
    ~InputFile();

    // Writes `size` bytes to a new file in the site's folder and opens it for kernels.
    Status write(const Site& site, const void* bytes, size_t size);

    [[nodiscard]] Descriptor descriptor() const { return descriptor_; }
    [[nodiscard]] const std::string& path() const { return path_; }

private:
    void swap(InputFile& other) {
        std::swap(files_, other.files_);
        std::swap(path_, other.path_);
        std::swap(descriptor_, other.descriptor_);
    }

    FileSystem* files_ = nullptr;
    std::string path_;
    Descriptor descriptor_ = -1;
};

}  // namespace penstock::workloads
