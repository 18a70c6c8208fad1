// Manages slots, and batches of copies whose ends the device's stream announces in order.
#include "transfer/staging.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/units.h"
#include "penstock/device/atomic.cuh"

namespace penstock::transfer {
namespace {

// A copy of a megabyte that takes this long has failed, even if the driver reports no error.
constexpr uint64_t kCopyLimitNs = 60'000'000'000;
constexpr uint64_t kSleepNs = 20'000;
// Time between two queries of the device for errors. Each query delays the copies of other threads.
constexpr uint64_t kQueryNs = 1'000'000;
constexpr uint64_t kAbandonLimitNs = 5'000'000'000;

}  // namespace

Staging::Staging(backend::Device* device, uint32_t slots) : device_(device), slot_count_(slots) {
    runs_.resize(slots);
    open_.reserve(slots);
    batches_.reserve(slots);
}

Result<std::unique_ptr<Staging>> Staging::create(backend::Device* device, uint32_t slots) {
    if (device != nullptr && device->properties().host_addressable) device = nullptr;
    std::unique_ptr<Staging> staging(new Staging(device, slots));
    // Untouched pages cost nothing: most programs read into aligned memory and never use staging.
    const size_t rounded = base::align_up(slots * stride(), 2 * base::kMiB);
    void* memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                        0);
    if (memory == MAP_FAILED) return Status{ENOMEM, "mmap", "no memory for staging"};
    (void)madvise(memory, rounded, MADV_HUGEPAGE);
    staging->mapped_ = memory;
    staging->mapped_size_ = rounded;
    if (device == nullptr) {
        staging->base_ = static_cast<std::byte*>(memory);
        return staging;
    }
    void* word = nullptr;
    if (Status s = device->allocate(4096, backend::Memory::kPinned, &word); !s.ok()) return s;
    staging->done_ = static_cast<uint64_t*>(word);
    if (Status s = device->create_stream(0, &staging->stream_); !s.ok()) return s;
    return staging;
}

Status Staging::prepare() {
    if (base_ != nullptr) return {};
    void* memory = nullptr;
    Status status = device_->allocate(slot_count_ * stride(), backend::Memory::kPinned, &memory);
    if (status.ok()) base_ = static_cast<std::byte*>(memory);
    return status;
}

Staging::~Staging() {
    if (stream_ != 0) (void)device_->destroy_stream(stream_);
    if (base_ != nullptr && base_ != mapped_) device_->free(base_);
    if (mapped_ != nullptr) munmap(mapped_, mapped_size_);
    if (done_ != nullptr) device_->free(done_);
}

int32_t Staging::take(size_t size) {
    if (!prepare().ok()) base_ = static_cast<std::byte*>(mapped_);
    const size_t count = std::max<size_t>(1, (size + kSlotSize - 1) / kSlotSize);
    for (size_t slot = 0, begin = 0; slot < runs_.size();) {
        if (runs_[slot] != 0) {
            slot += runs_[slot];
            begin = slot;
        } else if (++slot - begin == count) {
            runs_[begin] = static_cast<uint32_t>(count);
            return static_cast<int32_t>(begin);
        }
    }
    return -1;
}

void Staging::give_back(int32_t slot) { runs_[static_cast<size_t>(slot)] = 0; }

Status Staging::copy_out(std::span<const backend::CopyPart> parts, std::span<const int32_t> slots) {
    open_.insert(open_.end(), slots.begin(), slots.end());
    for (const backend::CopyPart& part : parts) open_size_ += part.size;
    if (Status status = make_stream(); !status.ok()) return status;
    return device_->copy_all(stream_, parts);
}

Status Staging::copy_in(int32_t slot, size_t to, std::span<const iovec> from) {
    open_.push_back(slot);
    if (Status status = make_stream(); !status.ok()) return status;
    parts_.clear();
    std::byte* at = memory(slot) + to;
    for (const iovec& piece : from) {
        parts_.push_back({at, piece.iov_base, piece.iov_len});
        at += piece.iov_len;
    }
    return device_->copy_all(stream_, parts_);
}

Status Staging::copy_to_host(std::span<const iovec> from, std::byte* to) {
    struct Part {
        int32_t slot;
        std::byte* to;
        size_t size;
    };
    std::vector<Part> parts;
    std::vector<int32_t> over;
    Status status;
    for (size_t piece = 0, done = 0; status.ok() && piece < from.size();) {
        parts.clear();
        over.clear();
        while (status.ok() && piece < from.size()) {
            const size_t size = std::min(from[piece].iov_len - done, kSlotSize);
            const int32_t slot = size > 0 ? take(size) : 0;
            if (slot < 0) break;  // the slots are full: a batch
            if (size > 0) {
                const iovec part{static_cast<std::byte*>(from[piece].iov_base) + done, size};
                parts.push_back({slot, to, size});
                status = copy_in(slot, 0, {&part, 1});
                to += size;
                done += size;
            }
            if (done < from[piece].iov_len) continue;
            ++piece;
            done = 0;
        }
        if (status.ok()) status = close_batch();
        while (status.ok() && over.size() < parts.size()) status = finished(&over, true);
        if (!status.ok()) abandon(&over);
        for (const Part& part : parts) {
            if (status.ok()) std::memcpy(part.to, memory(part.slot), part.size);
            give_back(part.slot);
        }
    }
    return status;
}

// Makes the first stream, or another one after abandon().
Status Staging::make_stream() {
    return stream_ != 0 ? Status{} : device_->create_stream(0, &stream_);
}

Status Staging::close_batch() {
    if (open_.empty()) return {};
    Batch batch{++sent_, base::monotonic_ns() + kCopyLimitNs, std::exchange(open_size_, 0), {}};
    batch.slots.swap(open_);
    open_.reserve(slot_count_);
    batches_.push_back(std::move(batch));
    return device_->announce(stream_, done_, sent_);
}

uint64_t Staging::waiting_size() const {
    uint64_t size = 0;
    for (size_t i = 1; i < batches_.size(); ++i) size += batches_[i].size;
    return size;
}

bool Staging::is_over(uint64_t batch) const {
    // The partner is the one in finished().
    return device::SystemWords::load(*done_, site::kCompletion) >= batch;
}

Status Staging::finished(std::vector<int32_t>* slots, bool wait) {
    if (batches_.empty()) return {};
    // The partner is the stream's store after the copies, which have read the slots by then.
    uint64_t done = device::SystemWords::load(*done_, site::kCompletion);
    if (done < batches_.front().number) {
        const uint64_t now_ns = base::monotonic_ns();
        if (now_ns - queried_ns_ >= kQueryNs) {
            queried_ns_ = now_ns;
            bool idle = false;
            if (Status failure = device_->query(stream_, &idle); !failure.ok()) return failure;
        }
        if (wait) base::sleep_until_ns(base::monotonic_ns() + kSleepNs);
        done = device::SystemWords::load(*done_, site::kCompletion);
    }
    if (done < batches_.front().number) {
        if (base::monotonic_ns() > batches_.front().limit_ns)
            return {EIO, "copy", "a copy to the device does not end"};
        return {};
    }
    size_t over = 0;
    while (over < batches_.size() && batches_[over].number <= done) {
        for (const int32_t slot : batches_[over].slots) slots->push_back(slot);
        ++over;
    }
    batches_.erase(batches_.begin(), batches_.begin() + static_cast<std::ptrdiff_t>(over));
    return {};
}

void Staging::abandon(std::vector<int32_t>* slots) {
    // A late copy would read what another transfer has put into its slot since.
    const uint64_t limit_ns = base::monotonic_ns() + kAbandonLimitNs;
    bool idle = false;
    while (device_->query(stream_, &idle).ok() && !idle && base::monotonic_ns() < limit_ns) {
        device_->poll();
        base::sleep_until_ns(base::monotonic_ns() + kSleepNs);
    }
    for (const Batch& batch : batches_)
        slots->insert(slots->end(), batch.slots.begin(), batch.slots.end());
    slots->insert(slots->end(), open_.begin(), open_.end());
    batches_.clear();
    open_.clear();
    open_size_ = 0;
    (void)device_->destroy_stream(std::exchange(stream_, 0));
}

}  // namespace penstock::transfer
