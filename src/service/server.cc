#include "service/server.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "penstock/device/atomic.cuh"
#include "request_queue/ring.h"

namespace penstock::service {
namespace {

using device::DeviceWords;
using device::SystemWords;

// Bytes of one storage operation at most: enough to be at full speed, small enough to overlap with
// copying out.
constexpr uint64_t kReadSizeMax = 1 << 20;
// No worker takes less than this of what is ready: neighbours merge into one read.
constexpr uint64_t kShareSizeMin = 256 << 10;
// One half of staging: as much as one merged read, some times over, and little enough to stay in
// the CPU's cache between the read and the copy.
constexpr uint64_t kHalfSize = 4 << 20;
static_assert(kHalfSize >= limits::kPageSizeMax);
static_assert(kReadSizeMax + limits::kPageSizeMax <= transfer::kRequestSizeMax);
// Storage operations of one server at a time: enough for direct reads to keep a disk busy.
constexpr uint32_t kOperationsMax = 16;
constexpr uint64_t kCopyLimitNs = 60'000'000'000;
constexpr uint64_t kLookNs = 1'000'000;  // between two looks at a stream with copies under way
// Pinned memory for the completion words of both halves, and one more word.
constexpr size_t kWordsSize = 4096;
static_assert((2 * limits::kDrainMax + 1) * sizeof(uint64_t) <= kWordsSize);

}  // namespace

Server::Server(Shared& shared, std::unique_ptr<transfer::Executor> executor)
    : shared_(shared),
      executor_(std::move(executor)),
      page_size_(1ull << shared.state->page_shift),
      direct_(shared.device->properties().host_addressable) {}

Result<std::unique_ptr<Server>> Server::create(Shared& shared, storage::Storage& storage) {
    // Pages that the device must be sent lie in staging of the server's own: to the executor all is
    // host memory.
    auto executor = transfer::Executor::create(
        storage, nullptr, {.depth = kOperationsMax, .requests = limits::kDrainMax});
    if (!executor.ok()) return executor.status();
    std::unique_ptr<Server> server(new Server(shared, std::move(executor.value())));
    if (!server->direct_) {
        if (Status status = server->create_staging(); !status.ok()) return status;
    }
    return server;
}

Status Server::create_staging() {
    drain_max_ = std::min<uint64_t>(limits::kDrainMax, kHalfSize / page_size_);
    const size_t half_size = drain_max_ * page_size_;
    void* memory = nullptr;
    Status status = shared_.device->allocate(2 * half_size + kWordsSize, backend::Memory::kPinned,
                                             &memory);
    if (!status.ok()) return status;
    staging_ = static_cast<std::byte*>(memory);
    auto* words = reinterpret_cast<uint64_t*>(staging_ + 2 * half_size);
    for (Half& half : halves_) {
        half.staging = staging_ + (&half - halves_) * half_size;
        half.words = words + (&half - halves_) * limits::kDrainMax;
    }
    done_ = words + 2 * limits::kDrainMax;
    return shared_.device->create_stream(0, &stream_);
}

Server::~Server() {
    if (stream_ != 0) (void)shared_.device->destroy_stream(stream_);
    if (staging_ != nullptr) shared_.device->free(staging_);
}

std::byte* Server::destination(size_t index) {
    if (!direct_) return half_->staging + index * page_size_;
    return shared_.state->frames + requests_[index].frame * page_size_;
}

// Whether there is a half whose copies are over; it is chosen then.
bool Server::find_staging() {
    // Partner: the stream's store behind the copies, which have read all of the half by then.
    const uint64_t done = SystemWords::load(*done_, site::kCompletion);
    for (Half& half : halves_) {
        half_ = &half;
        if (done >= half.last) return true;
    }
    return false;
}

// False: copies under way have failed or do not end, and every wait has been ended, since their
// pages are never announced.
bool Server::look_after_copies() {
    if (stopped_.load(std::memory_order_relaxed)) return false;
    const uint64_t now = base::monotonic_ns();
    if (now < look_ns_ || SystemWords::load(*done_, site::kRelaxed) == sent_) return true;
    look_ns_ = now + kLookNs;
    bool idle = false;
    activity_.store(Activity::kStorage, std::memory_order_release);
    const Status status = shared_.device->query(stream_, &idle);
    activity_.store(Activity::kIdle, std::memory_order_release);
    if (status.ok() && now < std::max(halves_[0].limit_ns, halves_[1].limit_ns)) return true;
    shared_.abort(EIO, "copies of pages to the device failed or did not end");
    stopped_.store(true, std::memory_order_relaxed);
    return false;
}

bool Server::serve_requests(uint32_t ring_index) {
    if (!direct_ && (!look_after_copies() || !find_staging())) return false;
    RingState& ring = shared_.state->rings[ring_index];
    const uint64_t started = base::monotonic_ns();
    const size_t count = request_queue::drain<SystemWords, DeviceWords>(
        shared_.heads[ring_index].ticket, ring.slots, ring.shift, requests_, drain_max_,
        shared_.workers, std::max<uint64_t>(1, kShareSizeMin >> shared_.state->page_shift));
    if (count == 0) return false;
    activity_.store(Activity::kServing, std::memory_order_release);
    beat();
    // A bell wakes one worker; who leaves something for others wakes the next.
    if (shared_.workers > 1 && request_queue::has_ready<SystemWords, DeviceWords>(
                                   shared_.heads[ring_index].ticket, ring.slots, ring.shift)) {
        shared_.device->ring(&ring.doorbell);
    }
    if (stop_.load(std::memory_order_relaxed)) {
        stopped_.store(true, std::memory_order_relaxed);
        return false;
    }
    std::sort(requests_, requests_ + count, [](const Request& a, const Request& b) {
        return a.file_slot != b.file_slot ? a.file_slot < b.file_slot : a.page < b.page;
    });
    storage_ns_ = 0;
    activity_.store(Activity::kStorage, std::memory_order_release);  // the file table may be busy
    const size_t runs = divide_into_runs(count);
    activity_.store(Activity::kServing, std::memory_order_release);
    read_runs(runs);
    shared_.counters->requests.fetch_add(count, std::memory_order_relaxed);
    shared_.counters->storage_ns.fetch_add(storage_ns_, std::memory_order_relaxed);
    shared_.counters->serving_ns.fetch_add(base::monotonic_ns() - started - storage_ns_,
                                           std::memory_order_relaxed);
    half_->last = sent_;
    half_->limit_ns = base::monotonic_ns() + kCopyLimitNs;
    activity_.store(Activity::kIdle, std::memory_order_release);
    beat();
    return true;
}

// Neighbouring pages of a file become one run each; returns how many.
size_t Server::divide_into_runs(size_t count) {
    size_t runs = 0;
    for (size_t i = 0; i < count; ++i) {
        pieces_[i] = {destination(i), page_size_};
        const bool continues = i > 0 && requests_[i].file_slot == requests_[i - 1].file_slot &&
                               requests_[i].page == requests_[i - 1].page + 1 &&
                               runs_[runs - 1].count * page_size_ < kReadSizeMax;
        if (continues) {
            ++runs_[runs - 1].count;
        } else {
            runs_[runs++] = {i, 1, shared_.files->find(requests_[i].file_slot)};
        }
    }
    return runs;
}

// Reads every run; pages behind one that failed are asked for again, each on its own, so that an
// error reaches only who reads the page it struck.
void Server::read_runs(size_t runs) {
    retry_count_ = 0;
    execute_runs(runs);
    if (retry_count_ == 0) return;
    activity_.store(Activity::kStorage, std::memory_order_release);  // the file table may be busy
    for (size_t i = 0; i < retry_count_; ++i) {
        runs_[i] = {retries_[i], 1, shared_.files->find(requests_[retries_[i]].file_slot)};
    }
    activity_.store(Activity::kServing, std::memory_order_release);
    execute_runs(std::exchange(retry_count_, 0));
}

// Plans every run, and completes each as it comes back.
void Server::execute_runs(size_t runs) {
    size_t pending = 0;
    for (size_t i = 0; i < runs; ++i) {
        const Run& run = runs_[i];
        const Request& first = requests_[run.first];
        if (run.source == nullptr) {  // closed by a kernel that still had requests for it
            for (size_t k = 0; k < run.count; ++k) complete(run.first + k, 0, kErrorClosed);
            send(run.first, run.count);
            continue;
        }
        transfer::Request request;
        request.source = run.source.get();
        request.offset = first.page * page_size_;
        request.size = run.count * page_size_;
        request.pieces = {pieces_ + run.first, run.count};
        request.cookie = i;
        PENSTOCK_CHECK(executor_->submit(request), "an executor has room for a drain");
        ++pending;
    }
    while (pending > 0) pending -= reap_runs();
    for (size_t i = 0; i < runs; ++i) runs_[i].source.reset();
}

size_t Server::reap_runs() {
    const uint64_t before = base::monotonic_ns();
    activity_.store(Activity::kStorage, std::memory_order_release);
    const size_t count = executor_->reap(outcomes_, true);
    activity_.store(Activity::kServing, std::memory_order_release);
    beat();
    storage_ns_ += base::monotonic_ns() - before;
    for (size_t i = 0; i < count; ++i) finish(runs_[outcomes_[i].cookie], outcomes_[i]);
    return count;
}

void Server::finish(const Run& run, const transfer::Outcome& outcome) {
    shared_.counters->reads.fetch_add(outcome.operations, std::memory_order_relaxed);
    shared_.counters->bytes.fetch_add(outcome.bytes, std::memory_order_relaxed);
    uint64_t left = outcome.bytes;
    size_t completed = 0;
    while (completed < run.count) {
        const uint64_t bytes = std::min(left, page_size_);
        left -= bytes;
        const bool struck = outcome.error != 0 && bytes < page_size_;
        complete(run.first + completed++, bytes, struck ? outcome.error : 0);
        if (struck) break;
    }
    send(run.first, completed);
    while (completed < run.count) retries_[retry_count_++] = run.first + completed++;
}

// Decides what becomes of one page and says so, or leaves that to send() where the page must be
// copied yet. `bytes` are good; the rest of the page lies beyond the file's end, unless
// `error` says why they are missing.
void Server::complete(size_t index, uint64_t bytes, int error) {
    const Request& request = requests_[index];
    const uint64_t begin = request.page * page_size_;
    const uint64_t size = shared_.files->size_of(request.file_slot);
    const uint64_t expected = size > begin ? std::min(page_size_, size - begin) : 0;
    if (bytes >= expected) {
        error = 0;
    } else if (error == 0) {
        activity_.store(Activity::kStorage, std::memory_order_release);  // may wait for the device
        // GPU threads would take the missing bytes for zeros.
        if (!shared_.files->shrink(request.file_slot, begin + bytes).ok()) error = EIO;
        activity_.store(Activity::kServing, std::memory_order_release);
    }
    if (bytes < page_size_) std::memset(destination(index) + bytes, 0, page_size_ - bytes);
    if (error != 0 && error != static_cast<int>(kErrorClosed))
        shared_.counters->failed_pages.fetch_add(1, std::memory_order_relaxed);
    const Completion word = make_completion(request.generation, static_cast<uint32_t>(error),
                                            static_cast<uint32_t>(bytes));
    if (!direct_) {
        half_->words[index] = word;
        return;
    }
    uint64_t* announced = &shared_.state->completions[request.frame];
    SystemWords::store(*announced, word, site::kComplete);
    shared_.device->notify(announced);
}

// Brings completed pages from staging to their frames and their completion words behind them, in
// one copy each as far as the frames are adjacent (staging is). Between the two the stream stores
// `done_`, which has a fence: no word overtakes its bytes. Behind both it stores `done_` again: the
// half is free. A call of the driver costs some microseconds, and so does a store by the stream;
// words that lay in host memory would be polled over the link
// (docs/design/0006-announcing-pages.md).
void Server::send(size_t first, size_t count) {
    if (direct_ || count == 0) return;
    activity_.store(Activity::kStorage, std::memory_order_release);
    backend::Device& device = *shared_.device;
    const auto each_stretch = [&](auto act) {
        for (size_t begin = first, next = first + 1; begin < first + count; begin = next++) {
            while (next < first + count && requests_[next].frame == requests_[next - 1].frame + 1)
                ++next;
            act(begin, next - begin);
        }
    };
    each_stretch([&](size_t begin, size_t pages) {
        std::byte* frames = shared_.state->frames + requests_[begin].frame * page_size_;
        if (device.copy(stream_, frames, destination(begin), pages * page_size_).ok()) return;
        for (size_t i = begin; i < begin + pages; ++i)
            half_->words[i] = make_completion(requests_[i].generation, EIO, 0);
    });
    bool stored = device.write_value(stream_, done_, ++sent_).ok();
    each_stretch([&](size_t begin, size_t pages) {
        uint64_t* words = shared_.state->completions + requests_[begin].frame;
        stored = stored &&
                 device.copy(stream_, words, half_->words + begin, pages * sizeof *words).ok();
    });
    if (!stored || !device.write_value(stream_, done_, ++sent_).ok()) {
        shared_.abort(EIO, "pages could not be announced to the device");
        stopped_.store(true, std::memory_order_relaxed);
    }
    activity_.store(Activity::kServing, std::memory_order_release);
}

bool Server::serve_calls() {
    bool any = false;
    for (uint32_t port = 0; port < limits::kPortsMax; ++port) {
        uint64_t word = SystemWords::load(shared_.state->port_requests[port], site::kServe);
        const uint64_t answered = SystemWords::load(shared_.state->port_responses[port],
                                                    site::kRelaxed);
        if (word >> 8 == answered ||
            shared_.port_taken[port].test_and_set(std::memory_order_acquire))
            continue;
        // What was read before the port was ours may be an older call, which another server has
        // answered.
        word = SystemWords::load(shared_.state->port_requests[port], site::kServe);
        if (word >> 8 != SystemWords::load(shared_.state->port_responses[port], site::kRelaxed)) {
            activity_.store(Activity::kCall, std::memory_order_release);
            answer_call(port, static_cast<ControlCall>(word & 0xff));
            if (!shared_.files->announce(shared_.state->port_responses[port], word >> 8).ok()) {
                shared_.abort(EIO, "the answer to a call could not be announced to the device");
            }
            shared_.counters->calls.fetch_add(1, std::memory_order_relaxed);
            activity_.store(Activity::kIdle, std::memory_order_release);
            beat();
            any = true;
        }
        shared_.port_taken[port].clear(std::memory_order_release);
    }
    return any;
}

void Server::answer_call(uint32_t index, ControlCall call) {
    ControlPort& port = shared_.state->ports[index];
    switch (call) {
        case ControlCall::kOpen: {
            const size_t length = strnlen(port.path, limits::kPathSizeMax);
            const auto opened = shared_.files->open(std::string(port.path, length), port.flags,
                                                    Opener::kKernel);
            port.result = opened.ok() ? opened.value() : -opened.status().error_number();
            return;
        }
        case ControlCall::kClose:
            port.result = -shared_.files->close(port.descriptor, Opener::kKernel).error_number();
            return;
        case ControlCall::kNone:
            break;
    }
    port.result = -EINVAL;
}

}  // namespace penstock::service
