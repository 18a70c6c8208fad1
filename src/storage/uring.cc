// One ring per queue. A slot is one operation in flight. It has at most one entry in the ring, and
// gets another for the rest after a short call. storage.h states the threads.
#include "storage/uring.h"

#include <liburing.h>

#include <array>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

#include "base/bounded.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/file_size_signal.h"
#include "storage/append.h"
#include "storage/descriptor_file.h"
#include "storage/reach.h"
#include "storage/scatter.h"

namespace penstock::storage {

namespace {

constexpr uint64_t kRetryPeriodNs = 1'000'000;
constexpr int kRetriesMax = 10'000;  // 10 s without kernel memory for a single request

Status refuse(int error) {
    switch (error) {
        case ENOSYS:
            return {error, "io_uring_setup", "this kernel has no io_uring"};
        case EPERM:
        case EACCES:
            return {
                error, "io_uring_setup",
                "io_uring is refused (sysctl kernel.io_uring_disabled, or a seccomp profile such "
                "as Docker's default)"};
        case ENOMEM:
            return {error, "io_uring_setup", "too little lockable memory (ulimit -l)"};
        case EMFILE:
        case ENFILE:
            return {error, "io_uring_setup", "too many open files (ulimit -n)"};
        default:
            return {error, "io_uring_setup", "io_uring does not work here"};
    }
}

// The kernel may give a new ring the addresses of a ring that another thread closed. The kernel
// orders the two, but neither the language nor ThreadSanitizer knows that, because liburing maps
// without the C library. This counter orders them: close_ring() releases, and make_ring() acquires.
std::atomic<uint32_t> closed_rings{0};

// With these flags a completion interrupts no thread: the owner finds it when it next enters the
// kernel (Linux 5.19). Older kernels refuse the flags with EINVAL and get none.
Status make_ring(uint32_t entries, io_uring* ring) {
    int result = io_uring_queue_init(entries, ring,
                                     IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG);
    if (result == -EINVAL) result = io_uring_queue_init(entries, ring, 0);
    if (result < 0) return refuse(-result);
    closed_rings.load(std::memory_order_acquire);
    return {};
}

void close_ring(io_uring* ring) {
    closed_rings.fetch_add(1, std::memory_order_acq_rel);
    io_uring_queue_exit(ring);
}

class UringQueue final : public Queue {
public:
    static Result<std::unique_ptr<Queue>> make(uint32_t depth) {
        io_uring ring{};
        if (Status status = make_ring(depth, &ring); !status.ok()) return status;
        return std::unique_ptr<Queue>(new UringQueue(depth, ring));
    }

    // The kernel writes into the caller's memory until the last completion, so the destructor waits
    // for it.
    ~UringQueue() override {
        while (in_flight() > 0) {
            enter(true);
            collect();
            while (!finished_.empty()) finished_.pop();
        }
        close_ring(&ring_);
    }

    size_t submit(std::span<const Operation> operations) override {
        size_t taken = 0;
        for (; taken < operations.size() && outstanding() < depth(); ++taken) {
            start(operations[taken]);
        }
        if (io_uring_sq_ready(&ring_) > 0) enter(false);
        return taken;
    }

    size_t reap(std::span<Completion> out, bool wait) override {
        collect();
        if (io_uring_sq_ready(&ring_) > 0) enter(false);  // resubmits the rest of short calls
        while (wait && finished_.empty() && in_flight() > 0) {
            enter(true);
            collect();
        }
        size_t count = 0;
        for (; count < out.size() && !finished_.empty(); ++count) out[count] = finished_.pop();
        return count;
    }

    [[nodiscard]] size_t outstanding() const override { return in_flight() + finished_.size(); }

private:
    struct Slot {
        Reach reach;
        uint64_t offset = 0;
        Scatter scatter;
        Completion completion;
        bool write = false;
    };

    UringQueue(uint32_t depth, const io_uring& ring)
        : Queue(depth), ring_(ring), slots_(depth), finished_(depth) {
        free_.reserve(depth);
        for (uint32_t i = 0; i < depth; ++i) free_.push_back(&slots_[i]);
    }

    [[nodiscard]] size_t in_flight() const { return slots_.size() - free_.size(); }

    // An append is made here: a ring does not tell where it went, and keeps no order.
    void start(const Operation& operation) {
        if (is_append(operation)) return finished_.push(append(operation));
        uint64_t size = 0;
        int error = validate(operation, &size);
        Reach reach;
        if (error == 0 && size > 0) {
            reach = Reach(operation);
            error = reach.error;
        }
        if (error != 0 || size == 0) {
            finished_.push({.cookie = operation.cookie, .bytes = 0, .error = error});
            return;
        }
        Slot* slot = free_.back();
        free_.pop_back();
        slot->reach = reach;
        slot->offset = operation.offset;
        slot->scatter = Scatter(operation.pieces, size);
        slot->completion = {.cookie = operation.cookie};
        slot->write = operation.write;
        writes_ += slot->write ? 1 : 0;
        enqueue(slot);
    }

    // Puts the next call of `slot` into the ring. The kernel sees it at the next enter().
    void enqueue(Slot* slot) {
        io_uring_sqe* entry = io_uring_get_sqe(&ring_);
        PENSTOCK_CHECK(entry != nullptr, "a ring has an entry for every operation of its depth");
        const Scatter::Call call = slot->scatter.next();
        const uint64_t offset = slot->offset + slot->completion.bytes;
        const int descriptor = slot->reach.descriptor;
        if (slot->write && call.count == 0) {
            io_uring_prep_write(entry, descriptor, call.base, static_cast<unsigned>(call.size),
                                offset);
        } else if (slot->write) {
            io_uring_prep_writev(entry, descriptor, call.pieces, call.count, offset);
        } else if (call.count == 0) {
            io_uring_prep_read(entry, descriptor, call.base, static_cast<unsigned>(call.size),
                               offset);
        } else {
            io_uring_prep_readv(entry, descriptor, call.pieces, call.count, offset);
        }
        entry->rw_flags = slot->reach.flags;
        io_uring_sqe_set_data(entry, slot);
    }

    // Gives the kernel the entries in the ring. With `wait`, blocks until one of them is complete.
    void enter(bool wait) {
        if (writes_ == 0) return enter_kernel(wait);
        base::FileSizeSignal signal;  // the kernel may write on this thread
        enter_kernel(wait);
        signal.take();
    }

    // A shortage of kernel memory is temporary: the entries stay in the ring, and the next call
    // submits them.
    void enter_kernel(bool wait) {
        for (int retries = 0; retries < kRetriesMax; ++retries) {
            const int result = io_uring_submit_and_wait(&ring_, wait ? 1 : 0);
            if (result >= 0 || result == -EINTR) return;
            PENSTOCK_CHECK(result == -EAGAIN || result == -EBUSY,
                           "the kernel takes entries of a ring that it has made");
            if (!wait) return;
            if (io_uring_cq_ready(&ring_) > 0) return;
            base::sleep_until_ns(base::monotonic_ns() + kRetryPeriodNs);
        }
        PENSTOCK_CHECK(false, "the kernel has memory for one call within ten seconds");
    }

    // Takes all available completions.
    void collect() {
        std::array<io_uring_cqe*, 64> batch{};
        unsigned count;
        while ((count = io_uring_peek_batch_cqe(&ring_, batch.data(), batch.size())) > 0) {
            for (unsigned i = 0; i < count; ++i) {
                settle(static_cast<Slot*>(io_uring_cqe_get_data(batch[i])), batch[i]->res);
            }
            io_uring_cq_advance(&ring_, count);
        }
    }

    // Handles the result of one call: a count of bytes, 0 at the end of a file that is read, or
    // -errno.
    void settle(Slot* slot, int result) {
        if (result > 0) {
            slot->completion.bytes += static_cast<uint64_t>(result);
            slot->scatter.advance(static_cast<uint64_t>(result));
            if (!slot->scatter.done() && !slot->reach.at_end(slot->completion.bytes)) {
                return enqueue(slot);
            }
        } else if (result == -EINTR || (result < 0 && slot->reach.again_without_flags(-result))) {
            if (slot->reach.error == 0) return enqueue(slot);
            slot->completion.error = slot->reach.error;
        } else if (result < 0 || slot->write) {
            slot->completion.error = result < 0 ? -result : EIO;
        }
        writes_ -= slot->write ? 1 : 0;
        finished_.push(slot->completion);
        free_.push_back(slot);
    }

    io_uring ring_;
    std::vector<Slot> slots_;
    std::vector<Slot*> free_;
    size_t writes_ = 0;  // writes in flight
    base::BoundedQueue<Completion> finished_;
};

class UringStorage final : public Storage {
public:
    [[nodiscard]] Kind kind() const override { return Kind::kUring; }
    [[nodiscard]] std::string description() const override { return "uring"; }

    Result<std::shared_ptr<File>> open(const std::string& path, int flags) override {
        return DescriptorFile::open(path, flags);
    }
    Result<std::shared_ptr<File>> adopt(int descriptor) override {
        return DescriptorFile::adopt(descriptor);
    }
    Status unlink(const std::string& path) override { return DescriptorFile::unlink(path); }

    Result<std::unique_ptr<Queue>> make_queue(uint32_t depth) override {
        if (Status status = check_depth(depth); !status.ok()) return status;
        return UringQueue::make(depth);
    }
};

// Returns 0, or the errno of an empty operation. A sandbox may allow the set-up and refuse the use.
int try_ring(io_uring* ring) {
    io_uring_prep_nop(io_uring_get_sqe(ring));
    const int submitted = io_uring_submit(ring);
    if (submitted < 0) return -submitted;
    io_uring_cqe* completion = nullptr;
    const int waited = io_uring_wait_cqe(ring, &completion);
    return waited < 0 ? -waited : 0;
}

Status try_uring() {
    io_uring ring{};
    if (Status status = make_ring(1, &ring); !status.ok()) return status;
    const int error = try_ring(&ring);
    close_ring(&ring);
    return error != 0 ? refuse(error) : Status{};
}

}  // namespace

// The test runs on its own thread. Some time after a ring is closed, the kernel interrupts the
// threads that used it, and cuts short what they write to a pipe at that moment.
Result<std::shared_ptr<Storage>> open_uring() {
    Status status;
    try {
        std::thread([&status] { status = try_uring(); }).join();
    } catch (const std::system_error&) {  // no thread can be started
        status = try_uring();
    }
    if (!status.ok()) return status;
    return std::shared_ptr<Storage>(std::make_shared<UringStorage>());
}

}  // namespace penstock::storage
