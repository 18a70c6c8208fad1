// Kernels of the tests of groups: see group_test.h.
#include "file/group_test.h"

#include "penstock/device/file.cuh"

namespace penstock::file_test {

constexpr unsigned kPending = 3;

template <class Group>
constexpr bool kOfWarp = std::is_same_v<Group, device::OneWarp> ||
                         std::is_same_v<Group, device::Lanes>;

PENSTOCK_DEVICE inline void count(unsigned long long* where, bool yes) {
    if (yes) atomicAdd(where, 1ull);
}

// Of this thread's group: a number that no other of the grid has.
template <class Group>
PENSTOCK_DEVICE unsigned group_number() {
    const unsigned warps = (blockDim.x + 31) / 32;
    return kOfWarp<Group> ? blockIdx.x * warps + threadIdx.x / 32 : blockIdx.x * warps;
}

PENSTOCK_DEVICE inline uint64_t next_random(uint64_t& state) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return state >> 33;
}

struct Piece {
    uint64_t offset, size;
};

PENSTOCK_DEVICE inline Piece random_piece(const GroupJob& job, uint64_t& state, uint64_t size_max) {
    const uint64_t offset = next_random(state) % (job.size + job.size / 16);
    return {offset, 1 + next_random(state) % size_max};
}

// Every thread that is left looks at all of it: whoever sees other bytes than the others says so.
PENSTOCK_DEVICE inline bool is_right(const GroupJob& job, const Piece& piece, int64_t count,
                                     const std::byte* buffer) {
    const uint64_t left = piece.offset < job.size ? job.size - piece.offset : 0;
    const uint64_t expected = piece.size < left ? piece.size : left;
    if (count != static_cast<int64_t>(expected)) return false;
    for (uint64_t i = threadIdx.x % 32; i < expected; i += 7)
        if (buffer[i] != job.expected[piece.offset + i]) return false;
    return true;
}

// The calls, once for each group: inlined into every place they would take nvcc minutes.
template <class Group>
PENSTOCK_NOINLINE PENSTOCK_DEVICE int64_t read_once(const GroupJob& job, Descriptor file,
                                                    int64_t offset, uint64_t size, void* buffer,
                                                    Group group) {
    return gread(job.fs, file, offset, size, buffer, group);
}
template <class Group>
PENSTOCK_NOINLINE PENSTOCK_DEVICE AsyncHandle async_once(const GroupJob& job, Descriptor file,
                                                         int64_t offset, uint64_t size,
                                                         void* buffer, Group group) {
    return gread_async(job.fs, file, offset, size, buffer, group);
}
template <class Group>
PENSTOCK_NOINLINE PENSTOCK_DEVICE int64_t wait_once(const GroupJob& job, AsyncHandle handle,
                                                    Group group) {
    return gwait(job.fs, handle, group);
}

template <class Group>
__global__ void read_at_random(GroupJob job, unsigned rounds) {
    const unsigned number = group_number<Group>();
    if (kOfWarp<Group> && number % 3 == 0 && threadIdx.x % 32 == 1) return;
    Group group;
    uint64_t state = job.seed * 1000 + number;
    std::byte* buffer = job.buffers + number * job.buffer_size;
    const uint64_t part = job.buffer_size / (kPending + 1);
    AsyncHandle handles[kPending];
    Piece pieces[kPending];
    for (AsyncHandle& handle : handles) handle = -1;
    for (unsigned round = 0; round < rounds; ++round) {
        const unsigned which = static_cast<unsigned>(next_random(state) % kPending);
        std::byte* mine = buffer + which * part;
        if (handles[which] >= 0) {
            const int64_t got = wait_once(job, handles[which], group);
            count(job.wrong, !is_right(job, pieces[which], got, mine));
            count(job.wrong, wait_once(job, handles[which], group) != -device::kErrorInvalid);
            handles[which] = -1;
        } else if (next_random(state) % 2 == 0) {
            pieces[which] = random_piece(job, state, part);
            handles[which] = async_once(job, job.file, static_cast<int64_t>(pieces[which].offset),
                                        pieces[which].size, mine, group);
            const bool refused = handles[which] == -device::kErrorAgain;
            count(job.refused, refused);
            count(job.wrong, handles[which] < 0 && !refused);
        } else {
            const Piece piece = random_piece(job, state, part);
            std::byte* to = buffer + kPending * part;
            const int64_t got = read_once(job, job.file, static_cast<int64_t>(piece.offset),
                                          piece.size, to, group);
            count(job.wrong, !is_right(job, piece, got, to));
        }
    }
    for (unsigned i = 0; i < kPending; ++i) {
        if (handles[i] < 0) continue;
        const int64_t got = wait_once(job, handles[i], group);
        count(job.wrong, !is_right(job, pieces[i], got, buffer + i * part));
    }
    count(job.done, threadIdx.x % 32 == 0);
}

template <class Group>
__global__ void call_all(GroupJob job) {
    const unsigned number = group_number<Group>();
    if (kOfWarp<Group> && number % 2 == 1 && threadIdx.x % 32 == 0) return;
    Group group;
    std::byte* buffer = job.buffers + number * job.buffer_size;
    const Descriptor file = gopen(job.fs, job.path, 0, group);
    count(job.wrong, file < 0);
    FileStatus status;
    count(job.wrong, gstat(job.fs, file, &status, group) != 0 || status.size != job.size);
    View view = gmmap(job.fs, file, 10, 100, group);
    if (view.size != -device::kErrorNoMemory) {  // as it may be with few frames
        count(job.wrong, view.size != 100 || view.data[99] != job.expected[109]);
        count(job.wrong, gmunmap(job.fs, view, group) != 0);
    }
    count(job.wrong, gmunmap(job.fs, view, group) != -device::kErrorInvalid);
    count(job.wrong, read_once(job, file, 5, 1000, buffer, group) != 1000);
    count(job.wrong, buffer[threadIdx.x] != job.expected[5 + threadIdx.x]);
    count(job.wrong, async_once(job, file, -1, 10, buffer, group) != -device::kErrorInvalid);
    count(job.wrong, async_once(job, file, 0, 10, nullptr, group) != -device::kErrorFault);
    count(job.wrong, wait_once(job, -1, group) != -device::kErrorInvalid);
    count(job.wrong, wait_once(job, int64_t{1} << 40 | 7, group) != -device::kErrorInvalid);
    const AsyncHandle nothing = async_once(job, file, 0, 0, nullptr, group);
    const AsyncHandle beyond = async_once(job, file, static_cast<int64_t>(job.size), 10, buffer,
                                          group);
    count(job.wrong, wait_once(job, nothing, group) != 0);
    count(job.wrong, wait_once(job, beyond, group) != 0);
    count(job.wrong, gadvise(job.fs, file, 0, 0, Advice::kDontNeed, group) != 0);
    const AsyncHandle late = async_once(job, file, 0, 10, buffer, group);
    count(job.wrong, late < 0);
    count(job.wrong, gclose(job.fs, file, group) != 0);
    // The other groups may have the file open still: then it is read.
    const int64_t got = wait_once(job, late, group);
    count(job.wrong, got != 10 && got != -device::kErrorBadDescriptor);
    count(job.done, threadIdx.x % 32 == 2);
}

template <class Group>
__global__ void leave_reads(GroupJob job, unsigned waited) {
    Group group;
    const unsigned number = group_number<Group>();
    std::byte* buffer = job.buffers + number * job.buffer_size;
    unsigned issued = 0;
    for (;; ++issued) {
        const AsyncHandle handle = async_once(job, job.file, issued * 5000, 4000, buffer, group);
        if (handle < 0) {
            count(job.wrong, handle != -device::kErrorAgain);
            break;
        }
        if (issued < waited) {
            count(job.wrong, wait_once(job, handle, group) != 4000);
        }
    }
    count(job.wrong, issued != limits::kAsyncReadsMax + waited);
    count(job.done, threadIdx.x % 32 == 0);
}

}  // namespace penstock::file_test

PENSTOCK_KERNEL(penstock::file_test::read_at_random<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::file_test::read_at_random<penstock::device::Warps>)
PENSTOCK_KERNEL(penstock::file_test::read_at_random<penstock::device::OneWarp>)
PENSTOCK_KERNEL(penstock::file_test::read_at_random<penstock::device::Lanes>)
PENSTOCK_KERNEL(penstock::file_test::call_all<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::file_test::call_all<penstock::device::Warps>)
PENSTOCK_KERNEL(penstock::file_test::call_all<penstock::device::OneWarp>)
PENSTOCK_KERNEL(penstock::file_test::call_all<penstock::device::Lanes>)
PENSTOCK_KERNEL(penstock::file_test::leave_reads<penstock::device::OneWarp>)
PENSTOCK_KERNEL(penstock::file_test::leave_reads<penstock::device::Lanes>)
PENSTOCK_KERNEL(penstock::file_test::leave_reads<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::file_test::leave_reads<penstock::device::Warps>)
