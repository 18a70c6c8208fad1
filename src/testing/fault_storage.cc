// The wrapper passes every call on to the storage underneath unless the plan says otherwise.
#include "testing/fault_storage.h"

#include <algorithm>
#include <chrono>

#include "base/bounded.h"
#include "base/clock.h"

namespace penstock::testing {

void FaultPlan::inject(const Fault& fault) {
    std::lock_guard lock(mutex_);
    faults_.push_back(fault);
}

void FaultPlan::clear() {
    std::lock_guard lock(mutex_);
    faults_.clear();
}

void FaultPlan::release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
}

uint64_t FaultPlan::calls(Call call) const {
    std::lock_guard lock(mutex_);
    return calls_[static_cast<size_t>(call)];
}

bool FaultPlan::wait_blocked(uint64_t count, uint64_t limit_ns) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::nanoseconds(limit_ns),
                             [&] { return blocked_ >= count; });
}

Fault FaultPlan::meet(Call call, uint64_t offset, uint64_t size) {
    constexpr Fault kNothing{.action = Action::kDelay};
    std::unique_lock lock(mutex_);
    const uint64_t number = ++calls_[static_cast<size_t>(call)];
    const auto fits = [&](const Fault& fault) {
        if (fault.call != call || number < fault.first || number - fault.first >= fault.count) {
            return false;
        }
        if (fault.action == Action::kShort) return call == Call::kRead || call == Call::kWrite;
        return fault.action != Action::kBad ||
               (fault.offset >= offset && fault.offset - offset < size);
    };
    const auto found = std::find_if(faults_.begin(), faults_.end(), fits);
    if (found == faults_.end()) return kNothing;
    Fault fault = *found;
    switch (fault.action) {
        case Action::kBad:
            fault.action = Action::kShort;
            fault.bytes = fault.offset - offset;
            return fault;
        case Action::kFail:
        case Action::kShort:
            lock.unlock();
            if (fault.delay_ns != 0) base::sleep_until_ns(base::monotonic_ns() + fault.delay_ns);
            return fault;
        case Action::kDelay:
            lock.unlock();
            base::sleep_until_ns(base::monotonic_ns() + fault.delay_ns);
            break;
        case Action::kBlock:
            ++blocked_;
            changed_.notify_all();
            changed_.wait(lock, [&] { return released_; });
            --blocked_;
            break;
    }
    return kNothing;
}

namespace {

class FaultFile final : public storage::File {
public:
    FaultFile(std::shared_ptr<storage::File> under, std::shared_ptr<FaultPlan> plan)
        : File(under->identity(), under->direct_alignment(), under->descriptor(), under->rights()),
          under_(std::move(under)),
          plan_(std::move(plan)) {}

    Status stat(storage::Identity* out) const override {
        const Fault fault = plan_->meet(Call::kStat);
        if (fault.action == Action::kFail) return {fault.error, "stat", "an injected fault"};
        return under_->stat(out);
    }

    Status sync(bool data_only) override {
        const Fault fault = plan_->meet(Call::kSync);
        if (fault.action == Action::kFail) return {fault.error, "fsync", "an injected fault"};
        return under_->sync(data_only);
    }

    Status truncate(uint64_t size) override {
        const Fault fault = plan_->meet(Call::kTruncate);
        if (fault.action == Action::kFail) return {fault.error, "ftruncate", "an injected fault"};
        return under_->truncate(size);
    }

    [[nodiscard]] storage::File* under() const { return under_.get(); }

private:
    const std::shared_ptr<storage::File> under_;
    const std::shared_ptr<FaultPlan> plan_;
};

// The first `size` bytes of `pieces`.
std::vector<iovec> cut(std::span<const iovec> pieces, uint64_t size) {
    std::vector<iovec> kept;
    for (iovec piece : pieces) {
        piece.iov_len = std::min<uint64_t>(piece.iov_len, size);
        size -= piece.iov_len;
        kept.push_back(piece);
    }
    return kept;
}

class FaultQueue final : public storage::Queue {
public:
    FaultQueue(std::unique_ptr<storage::Queue> under, std::shared_ptr<FaultPlan> plan)
        : Queue(under->depth()),
          plan_(std::move(plan)),
          slots_(depth()),
          failed_(depth()),
          under_(std::move(under)) {
        for (uint32_t i = 0; i < depth(); ++i) free_.push_back(i);
    }

    size_t submit(std::span<const storage::Operation> operations) override {
        size_t taken = 0;
        for (; taken < operations.size() && outstanding() < depth(); ++taken) {
            start(operations[taken]);
        }
        return taken;
    }

    size_t reap(std::span<storage::Completion> out, bool wait) override {
        size_t count = 0;
        for (; count < out.size() && !failed_.empty(); ++count) out[count] = failed_.pop();
        const size_t passed = under_->reap(out.subspan(count), wait && count == 0);
        for (storage::Completion& completion : out.subspan(count, passed)) restore(&completion);
        return count + passed;
    }

    [[nodiscard]] size_t outstanding() const override {
        return failed_.size() + (slots_.size() - free_.size());
    }

private:
    struct Slot {
        uint64_t cookie = 0;           // the caller's
        int error = 0;                 // of kShort
        std::vector<iovec> shortened;  // must live as long as the operation underneath
        FaultFile* file = nullptr;
    };

    void start(storage::Operation operation) {
        uint64_t size = 0;
        for (const iovec& piece : operation.pieces) size += piece.iov_len;
        const Call call = operation.write ? Call::kWrite : Call::kRead;
        const Fault fault = plan_->meet(call, operation.offset, size);
        if (fault.action == Action::kFail) {
            failed_.push({.cookie = operation.cookie, .bytes = 0, .error = fault.error});
            return;
        }
        const uint32_t index = free_.back();
        free_.pop_back();
        Slot& slot = slots_[index];
        slot.cookie = operation.cookie;
        slot.error = 0;
        if (fault.action == Action::kShort) {
            slot.error = fault.error;
            slot.shortened = cut(operation.pieces, fault.bytes);
            operation.pieces = slot.shortened;
        }
        auto* const file = dynamic_cast<FaultFile*>(operation.file);
        slot.file = file;
        operation.file = file == nullptr ? nullptr : file->under();
        operation.cookie = index;
        const size_t taken = under_->submit({&operation, 1});
        PENSTOCK_CHECK(taken == 1, "the queue underneath has room whenever the wrapper has");
    }

    void restore(storage::Completion* completion) {
        const Slot& slot = slots_[completion->cookie];
        free_.push_back(static_cast<uint32_t>(completion->cookie));
        completion->cookie = slot.cookie;
        if (completion->error == 0) completion->error = slot.error;
        // What the file underneath has learned of itself.
        if (slot.file != nullptr && slot.file->under()->drop_refused()) slot.file->refuse_drop();
    }

    const std::shared_ptr<FaultPlan> plan_;
    std::vector<Slot> slots_;
    std::vector<uint32_t> free_;
    base::BoundedQueue<storage::Completion> failed_;
    const std::unique_ptr<storage::Queue> under_;  // goes first: it waits for what uses the slots
};

}  // namespace

FaultStorage::FaultStorage(std::shared_ptr<storage::Storage> under)
    : under_(std::move(under)), plan_(std::make_shared<FaultPlan>()) {}

std::string FaultStorage::description() const { return "faults over " + under_->description(); }

Result<std::shared_ptr<storage::File>> FaultStorage::open(const std::string& path, int flags) {
    const Fault fault = plan_->meet(Call::kOpen);
    if (fault.action == Action::kFail) return Status{fault.error, "open", "an injected fault"};
    Result<std::shared_ptr<storage::File>> under = under_->open(path, flags);
    if (!under.ok()) return under;
    return std::shared_ptr<storage::File>(
        std::make_shared<FaultFile>(std::move(under.value()), plan_));
}

Status FaultStorage::unlink(const std::string& path) {
    const Fault fault = plan_->meet(Call::kUnlink);
    if (fault.action == Action::kFail) return {fault.error, "unlink", "an injected fault"};
    return under_->unlink(path);
}

Result<std::unique_ptr<storage::Queue>> FaultStorage::make_queue(uint32_t depth) {
    Result<std::unique_ptr<storage::Queue>> under = under_->make_queue(depth);
    if (!under.ok()) return under;
    return std::unique_ptr<storage::Queue>(
        std::make_unique<FaultQueue>(std::move(under.value()), plan_));
}

}  // namespace penstock::testing
