#include "service/server.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "penstock/device/atomic.cuh"
#include "request_queue/ring.h"

namespace penstock::service {
namespace {

using device::DeviceWords;
using device::SystemWords;

// Largest storage operation in bytes, unless a page is larger. It suffices for full speed, and is
// small enough to overlap with copying out.
constexpr uint64_t kReadSizeMax = 1 << 20;
// A worker takes at least this much of what is ready, because neighbours merge into one read.
constexpr uint64_t kShareSizeMin = 256 << 10;
static_assert(kReadSizeMax + limits::kPageSizeMax <= transfer::kRequestSizeMax);
// Storage operations in flight per server: enough direct reads to keep a disk busy.
constexpr uint32_t kOperationsMax = 16;

}  // namespace

Server::Server(Shared& shared, std::unique_ptr<transfer::Executor> executor)
    : shared_(shared),
      executor_(std::move(executor)),
      page_size_(1ull << shared.state->page_shift),
      direct_(shared.device->properties().host_addressable),
      notes_(shared.learner == nullptr ? nullptr : &shared.learner->add_notes()) {
    retries_.reserve(kRequestsMax * limits::kWindowPagesMax);
    sources_.reserve(limits::kDrainMax);
}

Result<std::unique_ptr<Server>> Server::create(Shared& shared, storage::Storage& storage) {
    // Pages for the device lie in the server's own staging, so the executor sees only host memory.
    auto executor = transfer::Executor::create(storage, nullptr,
                                               {.depth = kOperationsMax, .requests = kRequestsMax});
    if (!executor.ok()) return executor.status();
    std::unique_ptr<Server> server(new Server(shared, std::move(executor.value())));
    if (!server->direct_) server->oldest_ = &shared.oldest.emplace_back();
    return server;
}

Status Server::take_staging() {
    if (!direct_) {
        auto sender = PageSender::create(*shared_.device, *shared_.state);
        if (!sender.ok()) return sender.status();
        sender_ = std::move(sender.value());
    }
    auto writer = PageWriter::create(*shared_.device, *shared_.state, *shared_.files, *executor_);
    if (!writer.ok()) return writer.status();
    writer_ = std::move(writer.value());
    return {};
}

Server::~Server() {
    while (has_windows()) reap_windows();
}

std::byte* Server::destination(const PageOf& which) {
    if (!direct_) return sender_->page(places_[which.request] + which.page);
    return shared_.state->frames + (requests_[which.request].frame + which.page) * page_size_;
}

Server::PageOf Server::next(PageOf which) const {
    return which.page + 1 < requests_[which.request].page_count
               ? PageOf{which.request, which.page + 1}
               : PageOf{which.request + 1, 0};
}

// Returns false if copies in flight have failed or do not end. All waits have then been ended,
// because the pages would never be announced.
bool Server::look_after_copies() {
    if (stopped_.load(std::memory_order_relaxed)) return false;
    activity_.store(Activity::kStorage, std::memory_order_release);
    const uint64_t now = base::monotonic_ns();
    Status status = sender_->look_after(now);
    for (AnswerBoard* board : shared_.boards) {
        if (board == nullptr) break;
        if (status.ok()) status = board->flush();
        if (status.ok()) status = board->look_after(now);
    }
    activity_.store(Activity::kIdle, std::memory_order_release);
    if (status.ok()) return true;
    shared_.abort(EIO, "copies of pages to the device failed or did not end");
    stopped_.store(true, std::memory_order_relaxed);
    return false;
}

// Counts the pages of the current requests.
size_t Server::count_requests(size_t count) {
    size_t pages = 0, of_windows = 0;
    for (size_t i = 0; i < count; ++i) {
        pages += requests_[i].page_count;
        if (is_window(requests_[i].kind)) of_windows += requests_[i].page_count;
    }
    counters_.requests.add(pages);
    if (!background_) counters_.demanded.add(pages - of_windows);
    return pages;
}

bool Server::serve_requests(uint32_t ring_index, bool waits) {
    const bool background = ring_index == Shared::kBackground;
    size_t pages_max = SIZE_MAX;
    if (!direct_) {
        if (!look_after_copies()) return false;
        pages_max = sender_->begin(background);
        tell_oldest(sender_->oldest_lent());
        if (pages_max == 0) return false;
    }
    RingState& ring = shared_.ring(ring_index);
    // A waiting block mostly finds nothing, and reading the clock would cost more than this look.
    if (!request_queue::has_ready<SystemWords, DeviceWords>(shared_.heads[ring_index].ticket,
                                                            ring.slots, ring.shift))
        return false;
    if (!background && !may_claim(ring_index)) return false;
    const uint64_t started = base::monotonic_ns();
    size_t count = request_queue::drain<SystemWords, DeviceWords>(
        shared_.heads[ring_index].ticket, ring.slots, ring.shift, requests_,
        std::min<size_t>(limits::kDrainMax, pages_max),
        !background ? shared_.workers
        : missing_  ? 1  // the storage has all that is wanted at once
                    : shared_.hands,
        background ? 1 : std::max<uint64_t>(1, kShareSizeMin >> shared_.state->page_shift),
        pages_max);
    if (count == 0) {
        if (!direct_) tell_oldest(sender_->oldest_lent());
        return false;
    }
    activity_.store(Activity::kServing, std::memory_order_release);
    beat();
    // The doorbell wakes one worker. A worker that leaves requests for others wakes the next one.
    if (shared_.workers > 1 && request_queue::has_ready<SystemWords, DeviceWords>(
                                   shared_.heads[ring_index].ticket, ring.slots, ring.shift)) {
        const uint32_t bell = ring_index == Shared::kBackground ? 0 : ring_index;
        shared_.device->ring(&shared_.state->rings[bell].doorbell);
    }
    if (stop_.load(std::memory_order_relaxed)) {
        stopped_.store(true, std::memory_order_relaxed);
        return false;
    }
    taken_ns_ = started;
    due_ns_ = started + shared_.send_period_ns;
    background_ = background;
    ring_ = &ring;
    if (!background) board_ = shared_.boards[ring_index];
    if (notes_ != nullptr && !background)
        shared_.learner->note(*notes_, std::span(requests_, count));
    const size_t all = count;
    count = set_writes_aside(count);
    // Counted before the first request is answered, so that the counts are complete for a reader
    // after a kernel has ended.
    const size_t pages = count_requests(count);
    storage_ns_ = 0;
    if (count > 0) read_pages(count);
    // This thread copies what the OS page cache has, so leaving it to storage gains nothing.
    while (background && waits && hot_ != 0) reap_windows();
    if (count < all) write_pages(all - count);
    count_time(started);
    if (!direct_) {
        sender_->end(pages);
        tell_oldest(sender_->oldest_lent());
    }
    activity_.store(Activity::kIdle, std::memory_order_release);
    beat();
    return true;
}

void Server::read_pages(size_t count) {
    std::sort(requests_, requests_ + count, is_before);
    activity_.store(Activity::kStorage, std::memory_order_release);  // the file table may be locked
    const size_t runs = divide_into_runs(count);
    activity_.store(Activity::kServing, std::memory_order_release);
    read_runs(runs);
}

void Server::count_time(uint64_t started) {
    counters_.storage_ns.add(storage_ns_);
    counters_.serving_ns.add(base::monotonic_ns() - started - storage_ns_);
}

// Joins neighbouring pages of a file into runs, and returns the count of runs. Windows above some
// size stay separate, because their readers continue with each one. They are joined if the storage
// must be waited for: a disk takes less time for a few large requests.
size_t Server::divide_into_runs(size_t count) {
    size_t runs = 0, place = 0;
    for (size_t i = 0; i < count; ++i) {
        const Request& request = requests_[i];
        const uint64_t size_max = background_ && direct_ && !is_missing(request) ? kShareSizeMin
                                                                                 : kReadSizeMax;
        places_[i] = place;
        place += request.page_count;
        pieces_[i] = {destination({i, 0}), request.page_count * page_size_};
        const Request& before = requests_[i == 0 ? 0 : i - 1];
        const bool continues = i > 0 && shared_.merges && request.kind == before.kind &&
                               request.file_slot == before.file_slot &&
                               request.opened == before.opened &&
                               request.page == before.page + before.page_count &&
                               (runs_[runs - 1].pages + request.page_count) * page_size_ <=
                                   size_max;
        if (continues) {
            ++runs_[runs - 1].count;
            runs_[runs - 1].pages += request.page_count;
        } else {
            Run& run = runs_[runs++];
            run = {i, 1, 0, request.page_count, find_source(i)};
            run.background = background_;
            run.taken_ns = taken_ns_;
        }
    }
    return runs;
}

// Returns the source of the request before, if it is of the same file.
transfer::Source* Server::find_source(size_t request) {
    const Request& mine = requests_[request];
    const Request& before = requests_[request == 0 ? 0 : request - 1];
    const bool known = request > 0 && !sources_.empty() && mine.kind == before.kind &&
                       mine.file_slot == before.file_slot && mine.opened == before.opened;
    if (!known) sources_.push_back(shared_.files->find(mine));
    return sources_.back().get();
}

// Reads all runs. If a run fails, the pages behind the error are requested again one by one (all
// pages, if none arrived). So an error reaches only readers of the page that it struck.
void Server::read_runs(size_t runs) {
    execute_runs(runs, false);
    read_failed();
}

// Reads the pages of failed runs again, which may be of windows. The requests of windows that have
// ended are not needed afterwards.
void Server::read_failed() {
    // Windows that end meanwhile may add pages.
    for (size_t done = 0; done < retries_.size();) {
        const size_t count = std::min(retries_.size() - done, size_t{limits::kDrainMax});
        read_again(done, count);
        done += count;
    }
    retries_.clear();
    sources_.clear();
    if (ended_ == 0) return;
    for (size_t i = 0; i < kWindowsMax; ++i) {
        if ((ended_ >> i & 1) != 0) held_[i].reset();
    }
    const uint64_t windows = windows_.load(std::memory_order_relaxed);
    windows_.store(windows & ~ended_, std::memory_order_relaxed);
    hot_ &= ~ended_;
    ended_ = 0;
}

// Logs one event for the pages of the run that each block requested. This happens before the first
// of them is answered, so that the log is complete for a reader after a kernel has ended.
void Server::write_down(const Run& run, int error) {
    const uint64_t now = base::monotonic_ns();
    const auto thread = static_cast<uint32_t>(gettid());
    ServiceEvent events[limits::kDrainMax];
    size_t count = 0;
    for (size_t i = run.first; i < run.first + run.count; ++i) {
        const Request& request = requests_[i];
        if (count > 0 && request.block == events[count - 1].block) {
            events[count - 1].page_count += request.page_count;
            continue;
        }
        ServiceEvent& event = events[count++];
        event.kind = is_window(request.kind) ? ServedFor::kWindow
                     : run.background        ? ServedFor::kAdvice
                                             : ServedFor::kDemand;
        event.block = request.block;
        event.thread = thread;
        event.page_count = request.page_count;
        event.page = request.page;
        event.file = request.file_slot;
        event.taken_ns = run.taken_ns;
        event.arrived_ns = now;
        event.error_number = error;
    }
    activity_.store(Activity::kStorage, std::memory_order_release);  // the file table may be locked
    shared_.log->add({events, count});
    activity_.store(Activity::kServing, std::memory_order_release);
}

void Server::read_again(size_t first, size_t count) {
    activity_.store(Activity::kStorage, std::memory_order_release);  // the file table may be locked
    for (size_t i = 0; i < count; ++i) {
        const PageOf which = retries_[first + i];
        pieces_[i] = {destination(which), page_size_};
        sources_.push_back(shared_.files->find(requests_[which.request]));
        runs_[i] = {which.request, 1, which.page, 1, sources_.back().get()};
        runs_[i].again = true;
    }
    activity_.store(Activity::kServing, std::memory_order_release);
    execute_runs(count, true);
}

// Announces small runs of one file to the kernel before the first is read, while such reads are
// slow. Each is one call through the page cache, so missing pages would otherwise arrive one by
// one. Returns whether all runs are small and of one file.
bool Server::announce_to_storage(size_t runs) {
    if (runs < 2) return false;
    for (size_t i = 0; i < runs; ++i) {
        const bool small = runs_[i].pages * page_size_ < transfer::kPlanSizeMin;
        if (runs_[i].source == nullptr || runs_[i].source != runs_[0].source || !small)
            return false;
    }
    const transfer::Source& source = *runs_[0].source;
    if (!source.trial.slow_batches()) return true;
    activity_.store(Activity::kStorage, std::memory_order_release);
    for (size_t i = 0; i < runs; ++i) {
        source.file->announce((requests_[runs_[i].first].page + runs_[i].from) * page_size_,
                              runs_[i].pages * page_size_);
    }
    activity_.store(Activity::kServing, std::memory_order_release);
    return true;
}

// Plans each run, and completes each one when it returns.
void Server::execute_runs(size_t runs, bool again) {
    const uint64_t storage_before_ns = storage_ns_;
    const bool small = announce_to_storage(runs);
    size_t pending = 0;
    uint64_t since = 0;
    for (size_t i = 0; i < runs; ++i) {
        const Run& run = runs_[i];
        const PageOf begin{run.first, run.from};
        if (run.source == nullptr) {  // closed by a kernel that still had requests for it
            PageOf page = begin;
            for (size_t k = 0; k < run.pages; ++k, page = next(page))
                complete(page, 0, kErrorClosed);
            announce(begin, run.pages);
            if (!again) answer_nothing(run);
            continue;
        }
        if (!small && begin_windows(run)) continue;
        // A page that is read again has one piece, at the run's index. submit() may already read
        // what the page cache has.
        if (pending++ == 0) since = base::monotonic_ns();
        submit(run, {pieces_ + (again ? i : run.first), again ? 1 : run.count}, i);
        if (again || requests_[run.first].kind != RequestKind::kPullWindow) continue;
        // A window is given to its waiting team before the next one is read.
        pending -= reap_runs(since, false);
        since = base::monotonic_ns();
        send_answers();
    }
    while (pending > 0) {
        pending -= reap_runs(since, true);
        if (pending > 0) since = base::monotonic_ns();
    }
    send_pages();
    if (small) {
        uint64_t pages = 0;
        for (size_t i = 0; i < runs; ++i) pages += runs_[i].pages;
        runs_[0].source->trial.record_batch(runs, pages * page_size_,
                                            storage_ns_ - storage_before_ns);
    }
}

void Server::submit(const Run& run, std::span<const iovec> pieces, uint64_t cookie) {
    transfer::Request request;
    request.source = run.source;
    request.offset = (requests_[run.first].page + run.from) * page_size_;
    request.size = run.pages * page_size_;
    request.pieces = pieces;
    request.cookie = cookie;
    const bool window = may_be_left(run);
    request.looks = window || requests_[run.first].kind == RequestKind::kPullWindow;
    // submit() may read through the page cache, which takes as long as the storage takes.
    activity_.store(Activity::kStorage, std::memory_order_release);
    PENSTOCK_CHECK(executor_->submit(request), "an executor has room for a drain and windows");
    activity_.store(Activity::kServing, std::memory_order_release);
    beat();
    if (window) note_missing(run);
}

// Returns how many runs of the drain have ended. `since` is when the storage was given work. With
// `waits`, waits for at least one outcome.
size_t Server::reap_runs(uint64_t since, bool waits) {
    activity_.store(Activity::kStorage, std::memory_order_release);
    const size_t count = executor_->reap(outcomes_, waits);
    activity_.store(Activity::kServing, std::memory_order_release);
    beat();
    const uint64_t now = base::monotonic_ns();
    storage_ns_ += now - since;
    // Counted before any is answered, so that the counts are complete for a reader after a kernel
    // has ended.
    uint64_t operations = 0, bytes = 0;
    for (const transfer::Outcome& outcome : std::span(outcomes_).first(count)) {
        operations += outcome.operations;
        bytes += outcome.bytes;
    }
    counters_.reads.add(operations);
    counters_.bytes.add(bytes);
    size_t of_drain = 0;
    for (size_t i = 0; i < count; ++i) {
        const uint64_t place = outcomes_[i].cookie;
        finish(runs_[place], outcomes_[i]);
        if (place < limits::kDrainMax) {
            ++of_drain;
        } else {
            end_windows(runs_[place]);
        }
    }
    if (!direct_ && now >= due_ns_) send_answers();
    if (!direct_ && sender_->is_due(now >= due_ns_)) send_pages();
    return of_drain;
}

void Server::finish(const Run& run, const transfer::Outcome& outcome) {
    if (shared_.log != nullptr && !run.again) write_down(run, outcome.error);
    const PageOf begin{run.first, run.from};
    if (!run.again && outcome.bytes == run.pages * page_size_ && complete_whole(run)) return;
    uint64_t left = outcome.bytes;
    size_t completed = 0;
    PageOf page = begin;
    while (completed < run.pages) {
        const uint64_t bytes = std::min(left, page_size_);
        left -= bytes;
        const bool struck = outcome.error != 0 && bytes < page_size_;
        // A failed direct read returns no bytes. Which page failed shows when each one is read
        // again.
        if (struck && run.pages > 1 && outcome.bytes == 0) break;
        complete(page, bytes, struck ? outcome.error : 0);
        page = next(page);
        ++completed;
        if (struck) break;
    }
    announce(begin, completed);
    if (!run.again) answer_nothing(run);
    for (; completed < run.pages; ++completed, page = next(page)) retries_.push_back(page);
}

}  // namespace penstock::service
