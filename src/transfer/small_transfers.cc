#include "transfer/small_transfers.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"
#include "base/units.h"
#include "base/waits.h"
#include "transfer/reasons.h"

namespace penstock::transfer {
namespace {

// Returns whether a read that took `ns` waited for storage, as far as that is known.
bool waited(uint64_t size, uint64_t ns) {
    return RouteTrial::is_slow(size, ns) && base::waited_since_asked();
}

}  // namespace

void add_to(Report* report, uint64_t offset, const SmallOutcome& outcome) {
    const storage::Completion& completion = outcome.completion;
    report->bytes += completion.bytes;
    report->route_bytes[static_cast<size_t>(outcome.route)] += completion.bytes;
    const extent::Extent arrived{offset, completion.bytes};
    const extent::ResidencyRun held{arrived, outcome.residency,
                                    std::min(outcome.resident_size, completion.bytes)};
    count_reasons({&held, arrived.empty() ? 0u : 1u}, arrived, outcome.reason, report);
    report->residency_bytes[static_cast<size_t>(outcome.residency)] += completion.bytes;
    ++report->transfers;
    if (outcome.route != Route::kCached)  // nothing else of this read is in flight
        report->direct_depth = std::max<uint64_t>(report->direct_depth, 1);
    if (completion.error != 0)
        add_error(report, completion.error, offset + completion.bytes, outcome.route);
}

// Reads or writes through the cache. Sets kNoDrop as the reason if bytes stay that should leave no
// trace.
void SmallTransfers::move_cached(const Source& source, const storage::Operation& operation,
                                 const planner::RoutePolicy& policy, SmallOutcome* outcome) {
    outcome->completion = queue_.submit_and_reap(operation);
    outcome->reason = policy.reported(Route::kCached, outcome->reason, source.file->drop_refused());
}

SmallOutcome SmallTransfers::read(Source& source, uint64_t offset, const iovec& to,
                                  const ReadOptions& options) {
    const planner::RoutePolicy policy = source.policy(options);
    storage::Operation operation{source.file.get(), offset, {&to, 1}};
    operation.drop = policy.wants_drop();
    if (policy.goes_through_cache(to.iov_len)) source.read_ahead(true);
    const bool may_be_direct = policy.may_be_direct(to.iov_len) &&
                               offset + to.iov_len <= source.known_size();
    SmallOutcome outcome;
    if (const auto why = policy.asks_cached(); why.has_value()) {
        outcome.reason = *why;
    } else if (may_be_direct && operation.drop) {
        // Not all kernels support reads through the cache that leave nothing there, and those reads
        // include readahead.
        outcome = ask_residency(source, offset, to.iov_len);
        const bool cached = outcome.reason == RouteReason::kResident ||
                            outcome.reason == RouteReason::kDirty;
        if (!cached) return read_missing(source, operation, policy, outcome);
    } else if (may_be_direct) {
        if (source.trial.probing()) return read_probing(source, operation, policy);
        const uint64_t started = base::monotonic_ns();
        outcome.completion = queue_.submit_and_reap(operation);
        if (waited(to.iov_len, base::monotonic_ns() - started)) source.trial.start_probing();
        return outcome;
    }
    move_cached(source, operation, policy, &outcome);
    return outcome;
}

SmallOutcome SmallTransfers::write(Source& source, uint64_t offset, const iovec& from,
                                   const ReadOptions& options) {
    const planner::RoutePolicy policy = source.policy(options);
    storage::Operation operation{source.file.get(), offset, {&from, 1}};
    operation.drop = policy.wants_drop();
    operation.write = true;
    SmallOutcome outcome;
    outcome.reason = policy.cached_write_reason();
    move_cached(source, operation, policy, &outcome);
    return outcome;
}

SmallOutcome SmallTransfers::append(Source& source, std::span<const iovec> from,
                                    const ReadOptions& options) {
    const planner::RoutePolicy policy = source.policy(options);
    SmallOutcome outcome;
    outcome.reason = policy.append_reason();
    if (const auto only = policy.required(); only.has_value() && *only != Route::kCached) {
        outcome.route = *only;
        outcome.completion.error = EOPNOTSUPP;
        return outcome;
    }
    storage::Operation operation{source.file.get(), 0, from};
    operation.drop = policy.leaves_nothing(outcome.reason);
    operation.must_drop = policy.must_drop(outcome.reason);
    operation.write = true;
    move_cached(source, operation, policy, &outcome);
    return outcome;
}

// Reads directly into place, or through staging if the place is not aligned.
storage::Completion SmallTransfers::read_direct(Source& source, storage::Operation operation) {
    operation.route = Route::kDirect;
    const storage::DirectAlignment alignment = operation.file->direct_alignment();
    const iovec to = operation.pieces.front();
    const uint64_t begin = base::align_down(operation.offset, alignment.offset);
    const uint64_t end = base::align_up(operation.offset + to.iov_len, alignment.offset);
    if (end - begin == to.iov_len &&
        reinterpret_cast<uintptr_t>(to.iov_base) % alignment.memory == 0 && !source.was_cut(end))
        return queue_.submit_and_reap(operation);
    const int32_t slot = staging_.take(to.iov_len);
    PENSTOCK_CHECK(slot >= 0, "an idle executor has staging");
    const iovec piece{staging_.memory(slot), end - begin};
    const uint64_t skipped = operation.offset - begin;
    operation.offset = begin;
    operation.pieces = {&piece, 1};
    storage::Completion completion = queue_.submit_and_reap(operation);
    completion.bytes = std::min<uint64_t>(completion.bytes - std::min(completion.bytes, skipped),
                                          to.iov_len);
    std::memcpy(to.iov_base, staging_.memory(slot) + skipped, completion.bytes);
    if (completion.bytes == to.iov_len) completion.error = 0;
    staging_.give_back(slot);
    return completion;
}

// Returns what the cache holds of a small read, and the reason why the read would go through it.
SmallOutcome SmallTransfers::ask_residency(Source& source, uint64_t offset, uint64_t size) {
    storage::ResidencyQuestion question;
    question.range = {offset, size};
    const storage::ResidencyAnswer answer = source.probe.ask(question, runs_);
    bool missing = false, dirty = false, unknown = answer.runs == 0;
    for (const extent::ResidencyRun& run : std::span(runs_).first(answer.runs)) {
        unknown = unknown || run.state == Residency::kUnknown;
        missing = missing || run.state == Residency::kMissing || run.state == Residency::kMixed;
        dirty = dirty || run.state == Residency::kDirty;
    }
    SmallOutcome outcome;
    for (const extent::ResidencyRun& run : std::span(runs_).first(answer.runs))
        outcome.resident_size += run.resident_size;
    outcome.residency = unknown            ? Residency::kUnknown
                        : answer.runs == 1 ? runs_[0].state
                                           : Residency::kMixed;
    outcome.reason = unknown   ? RouteReason::kSmall
                     : dirty   ? RouteReason::kDirty
                     : missing ? RouteReason::kCheaperBuffered
                               : RouteReason::kResident;
    return outcome;
}

// Reads past the cache, or through it if direct I/O is refused.
SmallOutcome SmallTransfers::read_missing(Source& source, const storage::Operation& operation,
                                          const planner::RoutePolicy& policy,
                                          SmallOutcome outcome) {
    outcome.route = Route::kDirect;
    outcome.reason = RouteReason::kMissing;
    outcome.completion = read_direct(source, operation);
    if (source.refuses_direct(outcome.completion.error)) {
        outcome.route = Route::kCached;
        outcome.reason = RouteReason::kRefused;
        move_cached(source, operation, policy, &outcome);
    }
    return outcome;
}

// Makes a read for which the cache must be asked, because such reads were slow lately.
SmallOutcome SmallTransfers::read_probing(Source& source, const storage::Operation& operation,
                                          const planner::RoutePolicy& policy) {
    const uint64_t size = operation.pieces.front().iov_len;
    const uint64_t started = base::monotonic_ns();
    SmallOutcome outcome = ask_residency(source, operation.offset, size);
    const bool missing = outcome.reason == RouteReason::kCheaperBuffered;
    const bool direct = missing && source.trial.route() == Route::kDirect;
    if (missing) source.read_ahead(!direct);
    if (direct) {
        outcome = read_missing(source, operation, policy, outcome);
    } else {
        outcome.completion = queue_.submit_and_reap(operation);
    }
    source.trial.record(size, base::monotonic_ns() - started, !missing);
    return outcome;
}

}  // namespace penstock::transfer
