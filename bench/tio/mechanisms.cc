#include "bench/tio/mechanisms.h"

#include <array>
#include <cstring>
#include <optional>

#include "bench/harness/huge_buffer.h"
#include "bench/harness/plain_reads.h"
#include "bench/harness/report.h"
#include "bench/harness/routes.h"
#include "penstock/file.h"

namespace penstock::bench {
namespace {

// pread into host memory, then a blocking copy to the device.
class ReadThenCopy final : public Mechanism {
public:
    ReadThenCopy(const Device& device, const std::vector<std::string>& paths, uint64_t size_max,
                 bool direct) {
        for (const std::string& path : paths) {
            std::unique_ptr<PlainReads> reads;
            if (direct) {
                reads = std::make_unique<DirectReads>(path, 1, size_max);
            } else {
                reads = std::make_unique<CachedReads>(path, 1, 0);
            }
            threads_.push_back({std::move(reads), std::make_unique<HugeBuffer>(size_max),
                                need(Stream::create(device), "stream")});
        }
        addressable_ = device.host_addressable();
    }

    void read(unsigned thread, void* to, uint64_t size, uint64_t offset) override {
        Thread& own = threads_[thread];
        own.reads->read(own.memory->data(), size, offset);
        if (addressable_) {
            std::memcpy(to, own.memory->data(), size);
            return;
        }
        need(own.stream.copy(to, own.memory->data(), size), "copy");
        need(own.stream.synchronize(), "copy");
    }

private:
    struct Thread {
        std::unique_ptr<PlainReads> reads;
        std::unique_ptr<HugeBuffer> memory;
        Stream stream;
    };
    std::vector<Thread> threads_;
    bool addressable_;
};

// pread straight into device memory that the host can address.
class ReadIntoDevice final : public Mechanism {
public:
    explicit ReadIntoDevice(const std::vector<std::string>& paths) {
        for (const std::string& path : paths)
            threads_.push_back(std::make_unique<CachedReads>(path, 1, 0));
    }

    void read(unsigned thread, void* to, uint64_t size, uint64_t offset) override {
        threads_[thread]->read(static_cast<unsigned char*>(to), size, offset);
    }

private:
    std::vector<std::unique_ptr<PlainReads>> threads_;
};

// Where the host cannot address device memory: pread into pinned memory and a copy that goes on
// while the thread reads into its other buffer.
class ReadIntoPinned final : public Mechanism {
public:
    ReadIntoPinned(const Device& device, const std::vector<std::string>& paths, uint64_t size_max)
        : device_(device) {
        for (const std::string& path : paths) {
            Thread& own = threads_.emplace_back();
            own.reads = std::make_unique<CachedReads>(path, 1, 0);
            for (Slot& slot : own.slots) {
                slot.memory = static_cast<unsigned char*>(
                    need(device_.allocate_pinned(size_max), "pinned memory"));
                slot.stream = need(Stream::create(device_), "stream");
            }
        }
    }
    ~ReadIntoPinned() override {
        for (Thread& own : threads_)
            for (Slot& slot : own.slots) device_.free(slot.memory);
    }
    ReadIntoPinned(const ReadIntoPinned&) = delete;
    ReadIntoPinned& operator=(const ReadIntoPinned&) = delete;

    void read(unsigned thread, void* to, uint64_t size, uint64_t offset) override {
        Thread& own = threads_[thread];
        Slot& slot = own.slots[own.reads_so_far++ % own.slots.size()];
        need(slot.stream.synchronize(), "copy");
        own.reads->read(slot.memory, size, offset);
        need(slot.stream.copy(to, slot.memory, size), "copy");
    }
    void finish(unsigned thread) override {
        for (Slot& slot : threads_[thread].slots) need(slot.stream.synchronize(), "copy");
    }

private:
    struct Slot {
        unsigned char* memory = nullptr;
        Stream stream;
    };
    struct Thread {
        std::unique_ptr<PlainReads> reads;
        std::array<Slot, 2> slots;
        uint64_t reads_so_far = 0;
    };
    const Device device_;
    std::vector<Thread> threads_;
};

// This library: its default, or a route by name.
class LibraryReads final : public Mechanism {
public:
    LibraryReads(const Device& device, const std::vector<std::string>& paths,
                 std::optional<Route> route) {
        FileOptions options;
        options.reading.route = route;
        for (const std::string& path : paths)
            threads_.push_back({need(File::open(path, device, options), "open"), {}, true});
    }

    void read(unsigned thread, void* to, uint64_t size, uint64_t offset) override {
        Thread& own = threads_[thread];
        if (watched_) return read_watched(own, to, size, offset);
        const Result<uint64_t> got = own.file.read(to, size, offset);
        if (!got.ok()) need(got.status(), "read");
    }

    void watch_routes() override {
        watched_ = true;
        for (Thread& own : threads_) own.reasons = {};
    }
    std::string routes(bool* right) override {
        watched_ = false;
        ReasonBytes all;
        for (const Thread& own : threads_) {
            all.add(own.reasons);
            *right = *right && own.right;
        }
        return all.in_words();
    }

private:
    struct Thread {
        File file;
        ReasonBytes reasons;
        bool right;
    };

    static void read_watched(Thread& own, void* to, uint64_t size, uint64_t offset) {
        penstock::Report report;
        need(own.file.read(to, size, offset, &report), "read");
        own.reasons.add(report);
        own.right = own.right && adds_up(report, size);
    }

    std::vector<Thread> threads_;
    bool watched_ = false;
};

}  // namespace

std::vector<NamedMechanism> tio_mechanisms(const Device& device,
                                           const std::vector<std::string>& paths,
                                           uint64_t size_max) {
    std::unique_ptr<Mechanism> into_device;
    if (device.host_addressable()) {
        into_device = std::make_unique<ReadIntoDevice>(paths);
    } else {
        into_device = std::make_unique<ReadIntoPinned>(device, paths, size_max);
    }
    std::vector<NamedMechanism> list;
    list.push_back(
        {"clwrite", false, std::make_unique<ReadThenCopy>(device, paths, size_max, false)});
    list.push_back(
        {"clwrite+d", true, std::make_unique<ReadThenCopy>(device, paths, size_max, true)});
    list.push_back({"direct", true, std::make_unique<LibraryReads>(device, paths, Route::kDirect)});
    list.push_back({"pread+gpu", false, std::move(into_device)});
    list.push_back({"auto", false, std::make_unique<LibraryReads>(device, paths, std::nullopt)});
    return list;
}

}  // namespace penstock::bench
