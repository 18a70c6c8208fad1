#include "service/drain_runs.h"

#include "penstock/device/atomic.cuh"
#include "transfer/executor.h"

namespace penstock::service {
namespace {

// Largest storage operation in bytes, unless a page is larger. It suffices for full speed, and is
// small enough to overlap with copying out.
constexpr uint64_t kReadSizeMax = 1 << 20;
// The same for windows of which storage has all pages at once.
constexpr uint64_t kWindowReadSizeMax = 256 << 10;
static_assert(kReadSizeMax + limits::kPageSizeMax <= transfer::kRequestSizeMax);

bool are_of_one_file(const Request& a, const Request& b) {
    return a.kind == b.kind && a.file_slot == b.file_slot && a.opened == b.opened;
}

}  // namespace

bool is_missing(const FileSystemState& state, const Request& request) {
    return device::DeviceWords::load(state.files[request.file_slot].missing, site::kRelaxed) != 0;
}

DrainRuns::DrainRuns(const Shared& shared, PageDelivery& delivery)
    : shared_(shared),
      delivery_(delivery),
      page_size_(shared.page_size()),
      direct_(shared.direct()) {
    sources_.reserve(limits::kDrainMax);
}

std::span<ReadRun> DrainRuns::divide(std::span<const Request> requests, const Drain& drain) {
    size_t runs = 0, place = 0;
    for (size_t i = 0; i < requests.size(); ++i) {
        const Request& request = requests[i];
        const PageOf first{&request, 0, place};
        place += request.page_count;
        pieces_[i] = {delivery_.destination(first), request.page_count * page_size_};
        if (runs == 0 || !joins(runs_[runs - 1], request)) {
            runs_[runs++] = {.requests = {&request, 0},
                             .pieces = {pieces_ + i, 0},
                             .first = first,
                             .source = find_source(request, i == 0 ? nullptr : &request - 1),
                             .background = drain.background,
                             .taken_ns = drain.taken_ns};
        }
        ReadRun& run = runs_[runs - 1];
        run.requests = {run.requests.data(), run.requests.size() + 1};
        run.pieces = {run.pieces.data(), run.pieces.size() + 1};
        run.pages += request.page_count;
    }
    return {runs_, runs};
}

// Windows above some size stay separate, because their readers continue with each one. They are
// joined if the storage must be waited for: a disk takes less time for a few large requests.
bool DrainRuns::joins(const ReadRun& run, const Request& request) const {
    const Request& before = run.requests.back();
    if (!shared_.merges || !are_of_one_file(request, before) ||
        request.page != before.page + before.page_count)
        return false;
    const bool separate = run.background && direct_ && !is_missing(*shared_.state, request);
    return (run.pages + request.page_count) * page_size_ <=
           (separate ? kWindowReadSizeMax : kReadSizeMax);
}

// Returns the source of the request before, if it is of the same file.
transfer::Source* DrainRuns::find_source(const Request& request, const Request* before) {
    if (before == nullptr || !are_of_one_file(request, *before))
        sources_.push_back(shared_.files->find(request));
    return sources_.back().get();
}

std::span<ReadRun> DrainRuns::divide_again(std::span<const PageOf> pages) {
    for (size_t i = 0; i < pages.size(); ++i) {
        const PageOf& page = pages[i];
        pieces_[i] = {delivery_.destination(page), page_size_};
        runs_[i] = {.requests = {page.request, 1},
                    .pieces = {pieces_ + i, 1},
                    .first = page,
                    .pages = 1,
                    .source = find_source(*page.request, nullptr),
                    .again = true};
    }
    return {runs_, pages.size()};
}

std::shared_ptr<transfer::Source> DrainRuns::hold(const ReadRun& run) const {
    for (const std::shared_ptr<transfer::Source>& source : sources_) {
        if (source.get() == run.source) return source;
    }
    return nullptr;
}

}  // namespace penstock::service
