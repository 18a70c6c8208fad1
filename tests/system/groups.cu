// Kernels of the tests of groups: see groups.h.
#include "system/groups.h"

#include "penstock/device/file.cuh"
#include "testing/effort.h"

namespace penstock::system_test {

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
    constexpr uint64_t kStep = testing::usually(7, 67);
    for (uint64_t i = threadIdx.x % 32; i < expected; i += kStep)
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
PENSTOCK_NOINLINE PENSTOCK_DEVICE int64_t write_once(const GroupJob& job, const Piece& piece,
                                                     const std::byte* buffer, Group group) {
    return gwrite(job.fs, job.file, static_cast<int64_t>(piece.offset), piece.size, buffer, group);
}
template <class Group>
PENSTOCK_NOINLINE PENSTOCK_DEVICE AsyncHandle async_write_once(const GroupJob& job, Descriptor file,
                                                               int64_t offset, uint64_t size,
                                                               const void* buffer, Group group) {
    return gwrite_async(job.fs, file, offset, size, buffer, group);
}

// Fills a buffer with bytes of the group's choice.
template <class Group>
PENSTOCK_DEVICE void make_bytes(uint64_t seed, uint64_t size, std::byte* buffer, Group group) {
    (void)group.once([=]() -> int64_t {
        uint64_t state = seed;
        for (uint64_t i = 0; i < size; ++i) buffer[i] = static_cast<std::byte>(next_random(state));
        return 0;
    });
}

// What was written is as it should be from here on, if the call says that it was.
template <class Group>
PENSTOCK_DEVICE void note_written(const GroupJob& job, const Piece& piece, int64_t written,
                                  const std::byte* buffer, Group group) {
    count(job.wrong, written != static_cast<int64_t>(piece.size));
    (void)group.once([=]() -> int64_t {
        for (uint64_t i = 0; i < piece.size; ++i) job.model[piece.offset + i] = buffer[i];
        return 0;
    });
}

// A part of the file that one group writes, and how: the last quarter at once, the others in two
// halves.
struct Writer {
    uint64_t first, quarter;
    AsyncHandle handles[kPending];
    Piece pieces[kPending];
};

// Reads some of what has been written and is not being.
template <class Group>
PENSTOCK_DEVICE void look_at_written(const GroupJob& job, const Writer& writer, unsigned which,
                                     uint64_t& state, std::byte* to, Group group) {
    const uint64_t at = next_random(state) % writer.quarter;
    const Piece piece{writer.first + which * writer.quarter + at,
                      1 + next_random(state) % (writer.quarter - at)};
    const auto offset = static_cast<int64_t>(piece.offset);
    AsyncHandle handle = -1;
    if (next_random(state) % 2 == 0)
        handle = async_once(job, job.file, offset, piece.size, to, group);
    const int64_t got = handle >= 0 ? wait_once(job, handle, group)
                                    : read_once(job, job.file, offset, piece.size, to, group);
    count(job.wrong, !is_right(job, piece, got, to));
}

template <class Group>
__global__ void write_at_random(GroupJob job, unsigned rounds) {
    const unsigned number = group_number<Group>();
    if (kOfWarp<Group> && number % 3 == 0 && threadIdx.x % 32 == 1) return;
    Group group;
    uint64_t state = job.seed * 1000 + number;
    std::byte* buffer = job.buffers + number * job.buffer_size;
    const uint64_t part = job.buffer_size / (kPending + 1);
    const uint64_t share = job.size / (gridDim.x * ((blockDim.x + 31) / 32));
    Writer writer{number * share, share / (kPending + 1), {-1, -1, -1}, {}};
    for (unsigned round = 0; round < rounds; ++round) {
        const unsigned which = static_cast<unsigned>(next_random(state) % (kPending + 1));
        std::byte* mine = buffer + which * part;
        if (which < kPending && writer.handles[which] >= 0) {
            const int64_t written = wait_once(job, writer.handles[which], group);
            note_written(job, writer.pieces[which], written, mine, group);
            writer.handles[which] = -1;
            continue;
        }
        if (next_random(state) % 3 == 0) {
            look_at_written(job, writer, which, state, mine, group);
            continue;
        }
        const uint64_t most = next_random(state) % 2 == 0 ? 100 : writer.quarter;
        const uint64_t at = next_random(state) % writer.quarter;
        const uint64_t left = writer.quarter - at;
        const Piece piece{writer.first + which * writer.quarter + at,
                          1 + next_random(state) % (left < most ? left : most)};
        make_bytes(state, piece.size, mine, group);
        if (which == kPending) {
            note_written(job, piece, write_once(job, piece, mine, group), mine, group);
            continue;
        }
        writer.pieces[which] = piece;
        writer.handles[which] = async_write_once(job, job.file, static_cast<int64_t>(piece.offset),
                                                 piece.size, mine, group);
        count(job.refused, writer.handles[which] == -device::kErrorAgain);
        count(job.wrong,
              writer.handles[which] < 0 && writer.handles[which] != -device::kErrorAgain);
    }
    for (unsigned i = 0; i < kPending; ++i) {
        if (writer.handles[i] < 0) continue;
        const int64_t written = wait_once(job, writer.handles[i], group);
        note_written(job, writer.pieces[i], written, buffer + i * part, group);
    }
    const Piece all{writer.first, share};
    const int64_t got = read_once(job, job.file, static_cast<int64_t>(all.offset), all.size, buffer,
                                  group);
    count(job.wrong, !is_right(job, all, got, buffer));
    count(job.done, threadIdx.x % 32 == 0);
}

// The calls that change a file, in one of the group's own, which is gone afterwards.
template <class Group>
PENSTOCK_NOINLINE PENSTOCK_DEVICE void change_own_file(const GroupJob& job, const char* path,
                                                       std::byte* buffer, Group group) {
    constexpr uint64_t kWritten = 6000, kCut = 4500;  // into the second page
    const Descriptor file = gopen(job.fs, path, kOpenReadWrite | kOpenCreate, group);
    count(job.wrong, file < 0);
    make_bytes(job.seed, kWritten, buffer, group);
    count(job.wrong,
          gwrite(job.fs, file, 0, kWritten, buffer, group) != static_cast<int64_t>(kWritten));
    View view = gmmap(job.fs, file, 10, 100, group);
    if (view.size != -device::kErrorNoMemory) {
        count(job.wrong, view.size != 100 || view.writable == nullptr);
        (void)group.once([&]() -> int64_t {
            view.writable[7] = buffer[17] = ~buffer[17];
            return 0;
        });
        count(job.wrong, gmsync(job.fs, view, group) != 0);
        count(job.wrong, gmunmap(job.fs, view, group) != 0);
    }
    count(job.wrong, gmsync(job.fs, view, group) != -device::kErrorInvalid);
    count(job.wrong, gftruncate(job.fs, file, kCut, group) != 0);
    FileStatus status;
    count(job.wrong, gstat(job.fs, file, &status, group) != 0 || status.size != kCut);
    count(job.wrong, gfsync(job.fs, file, group) != 0);
    std::byte* found = buffer + kWritten;
    count(job.wrong, gread(job.fs, file, 0, kWritten, found, group) != static_cast<int64_t>(kCut));
    for (uint64_t i = threadIdx.x % 32; i < kCut; i += 32) count(job.wrong, found[i] != buffer[i]);
    count(job.wrong, gclose(job.fs, file, group) != 0);
    count(job.wrong, gunlink(job.fs, path, group) != 0);
    count(job.wrong, gopen(job.fs, path, 0, group) >= 0);
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
    count(job.wrong,
          async_write_once(job, file, 0, 10, buffer, group) != -device::kErrorBadDescriptor);
    const Descriptor writable = job.file;
    count(job.wrong,
          async_write_once(job, writable, -1, 10, buffer, group) != -device::kErrorInvalid);
    count(job.wrong,
          async_write_once(job, writable, 0, 10, nullptr, group) != -device::kErrorFault);
    count(job.wrong, async_write_once(job, writable, int64_t{1} << 60, 10, buffer, group) !=
                         -device::kErrorFileTooBig);
    count(job.wrong,
          wait_once(job, async_write_once(job, writable, 9, 0, nullptr, group), group) != 0);
    const AsyncHandle nothing = async_once(job, file, 0, 0, nullptr, group);
    const AsyncHandle beyond = async_once(job, file, static_cast<int64_t>(job.size), 10, buffer,
                                          group);
    count(job.wrong, wait_once(job, nothing, group) != 0);
    count(job.wrong, wait_once(job, beyond, group) != 0);
    count(job.wrong, gadvise(job.fs, file, 0, 0, Advice::kDontNeed, group) != 0);
    const AsyncHandle late = async_once(job, file, 0, 10, buffer, group);
    count(job.wrong, late < 0);
    count(job.wrong, gftruncate(job.fs, file, 0, group) != -device::kErrorBadDescriptor);
    count(job.wrong, gclose(job.fs, file, group) != 0);
    // The other groups may have the file open still: then it is read.
    const int64_t got = wait_once(job, late, group);
    count(job.wrong, got != 10 && got != -device::kErrorBadDescriptor);
    count(job.wrong, gfsync(job.fs, -1, group) != -device::kErrorBadDescriptor);
    count(job.wrong, gunlink(job.fs, nullptr, group) != -device::kErrorFault);
    change_own_file(job, job.own_paths[number], buffer, group);
    count(job.done, threadIdx.x % 32 == 2);
}

template <class Group>
__global__ void leave_calls(GroupJob job, unsigned waited, bool refuses) {
    Group group;
    const unsigned number = group_number<Group>();
    std::byte* buffer = job.buffers + number * job.buffer_size;
    const unsigned most = limits::kAsyncCallsMax + waited;
    unsigned issued = 0;
    for (; refuses || issued < most; ++issued) {
        const int64_t at = number * int64_t{200'000} + issued * 5000;  // a part of its own
        AsyncHandle handle = 0;
        if (issued % 2 == 0) {
            handle = async_once(job, job.file, at, 4000, buffer, group);
        } else {
            handle = async_write_once(job, job.file, at, 4000, buffer + 4000, group);
        }
        if (handle < 0) {
            count(job.wrong, handle != -device::kErrorAgain);
            break;
        }
        if (issued < waited) {
            count(job.wrong, wait_once(job, handle, group) != 4000);
        }
    }
    count(job.wrong, issued != most);
    count(job.done, threadIdx.x % 32 == 0);
}

}  // namespace penstock::system_test

PENSTOCK_KERNEL(penstock::system_test::read_at_random<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::system_test::read_at_random<penstock::device::Warps>)
PENSTOCK_KERNEL(penstock::system_test::read_at_random<penstock::device::OneWarp>)
PENSTOCK_KERNEL(penstock::system_test::read_at_random<penstock::device::Lanes>)
PENSTOCK_KERNEL(penstock::system_test::call_all<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::system_test::call_all<penstock::device::Warps>)
PENSTOCK_KERNEL(penstock::system_test::call_all<penstock::device::OneWarp>)
PENSTOCK_KERNEL(penstock::system_test::call_all<penstock::device::Lanes>)
PENSTOCK_KERNEL(penstock::system_test::leave_calls<penstock::device::OneWarp>)
PENSTOCK_KERNEL(penstock::system_test::write_at_random<penstock::device::OneWarp>)
PENSTOCK_KERNEL(penstock::system_test::leave_calls<penstock::device::Lanes>)
PENSTOCK_KERNEL(penstock::system_test::write_at_random<penstock::device::Lanes>)
PENSTOCK_KERNEL(penstock::system_test::leave_calls<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::system_test::write_at_random<penstock::device::Block>)
PENSTOCK_KERNEL(penstock::system_test::leave_calls<penstock::device::Warps>)
PENSTOCK_KERNEL(penstock::system_test::write_at_random<penstock::device::Warps>)
