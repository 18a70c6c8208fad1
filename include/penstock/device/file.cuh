// Files inside kernels: gopen gclose gread gread_async gwait gwrite gwrite_async gfsync gftruncate
// gunlink gstat gmmap gmsync gmunmap gadvise.
//
// `Group` names the calling threads. They call together and with the same arguments, all get the
// same result, and every call is a barrier for them. device::Block, the default: all threads of the
// block; none of them may have returned before. device::OneWarp: the threads of a warp that have
// not returned; other warps need not call. (device::Warps and device::Lanes are the
// GPU's forms of the two; the CPU backend can run them, too.) Counts are bytes; errors are negative
// errno values. No call waits for ever: when the host stops serving, calls that wait return its
// abort code or -EOWNERDEAD. The calls are those of GPUfs (seed 000, section 2.2), complete: they
// include end of file, errors and any alignment.
//
// When a write becomes visible, and to which reader:
//   1. One GPU. A read sees the write of another group on the same GPU under two conditions: the
//      writer's call has returned (for a gwrite_async: its gwait), and both groups have since
//      synchronised at device scope (an atomic with release and acquire, or the end of a kernel).
//      A read and a write of the same bytes at the same time give each byte its old or new value.
//        gwrite(fs, file, 0, 64, line);              // block 0
//        if (lane == 0) flag.store(1, release);
//        while (flag.load(acquire) == 0) {}          // block 1
//        gread(fs, file, 0, 64, copy);               // reads what block 0 wrote
//   2. Between processors: close, then open. When the last gclose of a descriptor that may write
//      has returned, every reader of the file sees what kernels wrote. A gopen sees what other
//      programs wrote and closed before it, if the file has not been open here since before they
//      wrote. A file whose time of change is within two ticks of the clock counts as changed.
//        gwrite(fs, file, 0, 64, line);              // a kernel
//        gclose(fs, file);
//        pread(descriptor, copy, 64, 0);             // the host after the kernel: reads `line`
//        pwrite(descriptor, line, 64, 0);
//        gopen(fs, path, kOpenReadOnly);             // a later kernel, which reads it
//   3. Writers on different processors at the same time merge by granules of 64 bytes, aligned in
//      the file. If a kernel wrote any byte of a granule, the whole granule goes to the file, and
//      the last processor to write it wins. No other byte of the file is touched. All of a view
//      that may be written counts as written.
//        gwrite(fs, file, 100, 28, data);   // the file gets bytes 64 to 127 from this cache
//   4. kOpenWriteOnce: nothing of the file is read, and it need not be readable. Bytes that no
//      kernel wrote keep the file's value. A byte that is written twice may get either value.
//      Granules written as a whole go through the page cache; a part of one costs a trip to the
//      host.
//        gopen(fs, path, kOpenWriteOnly | kOpenWriteOnce);
//        gwrite(fs, file, block * 4096, 4096, row);  // each block its own row: no page is read
//   5. gfsync: what was written before is on the disk. gclose and eviction only hand bytes to the
//      operating system.
//        gwrite(fs, log, at, size, record);
//        if (gfsync(fs, log) == 0) answer();         // the record outlives a crash
//   6. kOpenNoSync, where all descriptors that may write a file have it: neither close nor sync
//      writes the file back, and its cached bytes are dropped with the last of these descriptors.
//      Its pages go to the file only to make room. If a descriptor is opened without the flag, all
//      pages that are dirty then are written back for that descriptor.
#pragma once

#include <compare>
#include <type_traits>

#include "penstock/device/advice.cuh"
#include "penstock/device/async_call.cuh"
#include "penstock/device/close.cuh"
#include "penstock/device/control_port.cuh"
#include "penstock/device/errors.cuh"
#include "penstock/device/handle.h"
#include "penstock/device/read.cuh"
#include "penstock/device/sync.cuh"
#include "penstock/device/truncate.cuh"
#include "penstock/device/write.cuh"

namespace penstock {

// The result of gstat.
struct FileStatus {
    uint64_t size = 0;        // bytes
    uint64_t device = 0;      // st_dev
    uint64_t inode = 0;       // st_ino
    int64_t modified_ns = 0;  // st_mtim, nanoseconds since 1970
    uint64_t mode = 0;        // file type bits of st_mode
};

// The result of gopen: a Descriptor, which needs all of its 64 bits. An int would lose the half
// that later calls check, so it converts to nothing smaller. `auto` keeps it as it is.
struct OpenedDescriptor {
    Descriptor descriptor;

    PENSTOCK_DEVICE constexpr operator Descriptor() const { return descriptor; }
    template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, Descriptor>) PENSTOCK_DEVICE constexpr
    operator T() const {
        static_assert(std::is_integral_v<T> && sizeof(T) == sizeof(Descriptor),
                      "gopen returns a penstock::Descriptor of 64 bits, which does not fit: write "
                      "`penstock::Descriptor file = penstock::gopen(...)`");
        return static_cast<T>(descriptor);
    }

    // Compares with an errno or 0, as a Descriptor is compared.
    template <class T>
    requires std::is_integral_v<T> PENSTOCK_DEVICE friend constexpr bool operator==(
        OpenedDescriptor a, T b) {
        return a.descriptor == static_cast<Descriptor>(b);
    }
    template <class T>
    requires std::is_integral_v<T> PENSTOCK_DEVICE friend constexpr auto operator<=>(
        OpenedDescriptor a, T b) {
        return a.descriptor <=> static_cast<Descriptor>(b);
    }
};

template <class Group = device::Block>
PENSTOCK_DEVICE int gclose(DeviceFileSystem fs, Descriptor file, Group group = {});

// Opens a file.
//   path   NUL-terminated, at most 4,095 bytes, in memory that GPU threads can read; relative to
//          the host process's directory
//   flags  kOpenReadOnly, kOpenWriteOnly or kOpenReadWrite, with kOpenCreate (mode 0666 less the
//          umask), kOpenExclusive, kOpenTruncate, kOpenAppend, kOpenWriteOnce, kOpenNoSync; the
//          numbers of open(2) where it has them
// A block or a warp calls; waits for the host. Returns a descriptor (>= 0) that any block of any
// kernel may use. It is counted: each gopen needs its gclose. Close-to-open: a file that changed
// since its pages were cached is read again. While open, a file can grow to twice the size that it
// had at the open, or to kGrowingWordsMin * 512 pages if that is more. Errors: those of open(2);
// -EISDIR, -ESPIPE, -ENOTSUP for a file that is not regular; -EFBIG when it has more pages than the
// page table has room for; -ENFILE when kFilesMax files are known and all are in use;
// -ENAMETOOLONG; -EINVAL for unknown flags; -EFAULT for a null path; -EBUSY for kOpenWriteOnce of a
// file that is open without it, or the reverse; -EAGAIN when the file's last writer has been
// dropping pages that it could not write back for 10 s. Cost: a trip to the host, an open and a
// stat there; for kOpenTruncate of a file that is open already, also a gftruncate.
template <class Group = device::Block>
PENSTOCK_DEVICE OpenedDescriptor gopen(DeviceFileSystem fs, const char* path, int flags,
                                       Group group = {}) {
    const auto open = [&](int how) -> int64_t {
        return group.once([&]() -> int64_t {
            if (path == nullptr) return -device::kErrorFault;
            device::Wait wait(*fs.state);
            for (const uint64_t began = device::now_ns();;) {
                const uint64_t& hand = fs.state->port_hand;  // counts calls, a gclose included
                const uint64_t seen = device::DeviceWords::load(hand, site::kRelaxed);
                const int64_t answer = device::control_call(*fs.state,
                                                            {ControlCall::kOpen, 0, path, how});
                const bool late = device::now_ns() - began > limits::kDiscardingNs;
                if (answer != -device::kErrorAgain || late) return answer;
                how &= ~kOpenExclusive;  // the file did not exist: this call has made it
                if (const int error = wait.step(&hand, seen + 1); error != 0) return error;
            }
        });
    };
    const Descriptor opened = open(flags);
    if (opened != -device::kErrorBusy || (flags & kOpenTruncate) == 0) return {opened};
    // The file is open already, so GPU threads must truncate its cached pages too. kOpenExclusive
    // is dropped: this call has made the file, and another call has opened it since.
    const Descriptor file = open(flags & ~(kOpenTruncate | kOpenExclusive));
    const int64_t cut = file < 0 ? 0 : device::truncate(fs, file, 0, group);
    if (cut == 0) return {file};
    const int lost = gclose(fs, file, group);  // if it is the last writer, only it gets the error
    return {lost != 0 ? lost : cut};
}

// Gives a descriptor back; its pages stay cached. The last descriptor that may write a file writes
// it back first. A block or a warp calls; waits for the host. Returns 0. Errors: -EBADF; -EIO,
// -ENOSPC, -EDQUOT ... when pages could not be written back since an error was last returned: the
// descriptor is given back all the same, and these pages are dropped. Cost: a trip to the host; for
// the last writer two trips and the writes.
template <class Group>
PENSTOCK_DEVICE int gclose(DeviceFileSystem fs, Descriptor file, Group group) {
    const device::Closed closed = device::close_file(fs, file, Opener::kKernel, group);
    return static_cast<int>(closed.written != 0 ? closed.written : closed.answer);
}

// Reads `size` bytes at `offset` into `buffer`, through the page cache.
//   offset  bytes, >= 0, any alignment
//   size    bytes, any
//   buffer  one for the whole group, device or shared memory, any alignment; fastest where it
//           agrees with the offset modulo 16
// A block or a warp calls; submits all its misses together, then waits for them. On return the
// bytes are visible to all threads of the group. Returns the bytes read: fewer than `size` only at
// the end of the file, 0 beyond it. Errors: -EBADF; -EINVAL for a negative offset; -EFAULT for a
// null buffer; the errno of the storage read if a page of the range could not be read (a later
// gread requests that page again). After an error the contents of `buffer` are undefined. Cost: for
// each hit an atomic addition, a copy and an atomic subtraction; for each miss also a request to
// the host. Source: seed 000, section 2.2.
template <class Group = device::Block>
PENSTOCK_DEVICE int64_t gread(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                              uint64_t size, void* buffer, Group group = {}) {
    FileSystemState& system = *fs.state;
    const auto begin = [&system, descriptor, offset, size](const auto& team, unsigned place,
                                                           unsigned count) {
        return device::begin_read(team, system, place, descriptor, offset, size, count);
    };
    const auto work = [=, &system](const auto& team, unsigned index, unsigned teams,
                                   ReadaheadPlace* place) -> int64_t {
        if (place != nullptr && place->pull_count > 0)
            device::pull_windows(team, index, system, *place);
        device::RangeRequest request;
        const int64_t answer = device::prepare_read(team, system, descriptor, offset, size, buffer,
                                                    request);
        if (answer != 1) return answer;
        request.place = place;
        return device::read_part(team, index, teams, system, request);
    };
    return group.divide(begin, work, [](ReadaheadPlace* place) { device::end_read(place); });
}

// Begins a gread: requests the range and returns without waiting for it.
//   offset, size, buffer  as for gread; only gwait writes `buffer`, which must live until then
// A block or a warp calls. The call may wait for pages that it requested and that find no room, but
// for nothing else. Returns a handle (>= 0) for one gwait, by any group of any kernel after this
// call. Up to kAsyncPagesMax pages of the range (on a GPU at most 32 for each warp of the group, on
// the CPU backend 64) are pinned and in flight; gwait reads the rest, and pages that found no room.
// Errors: -EBADF, -EINVAL, -EFAULT as gread; -EAGAIN when this warp, or the block's first warp, has
// kAsyncCallsMax handles without a gwait, those of gwrite_async included. (On a device of more than
// kAsyncTableMax / kAsyncCallsMax warps a warp may have more, until all have kAsyncTableMax
// together.) A lost handle holds its pages until FileSystem::reclaim(). Cost: as gread, without the
// copy.
template <class Group = device::Block>
PENSTOCK_DEVICE AsyncHandle gread_async(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                                        uint64_t size, void* buffer, Group group = {}) {
    FileSystemState& system = *fs.state;
    const auto prepare = [=, &system](const auto& team, device::RangeRequest& request) {
        return device::prepare_read(team, system, descriptor, offset, size, buffer, request);
    };
    return device::issue<Direction::kOut>(system, group, prepare);
}

// Completes a gread_async or a gwrite_async: waits for the pages that it requested, then copies
// them to the buffer or writes the buffer.
//   handle  of a gread_async or gwrite_async; good for one gwait, whatever the result
// A block or a warp calls, the same that began the call or another; waits. On return the bytes read
// are visible to all threads of the group, and bytes written are as after a gwrite. Returns what
// gread or gwrite would have returned. Errors: also -EBADF when the file was closed meanwhile, and
// -EINVAL for an unknown handle or one that had its gwait. Cost: the copy; for pages that found no
// room, as gread or gwrite.
template <class Group = device::Block>
PENSTOCK_DEVICE int64_t gwait(DeviceFileSystem fs, AsyncHandle handle, Group group = {}) {
    return device::wait_for_call(*fs.state, handle, group);
}

// Writes `size` bytes from `buffer` to the file at `offset`, through the page cache. The file grows
// as needed, with zeros between.
//   offset  bytes, >= 0, any alignment; ignored by a descriptor that appends (kOpenAppend): it
//           writes in one piece at the end that the file has then
//   size    bytes, any
//   buffer  one for the whole group, device or shared memory, any alignment; only read
// A block or a warp calls; waits for pages that it writes in part, and for room. Visibility: see
// the rules above. Returns `size`. Errors: -EBADF, also when the file is not open for writing;
// -EINVAL for a negative offset; -EFAULT for a null buffer; -EFBIG beyond the size to which the
// file may grow (see gopen); the errno of the storage read if a page that is written in part could
// not be read; -ENOSPC or another errno of writes if there is no room because no page could be
// written back. After an error a part of the range may be written. Cost: as gread, and two atomics
// for each page to mark it. A page that is written as a whole, or lies beyond the end, is not read.
template <class Group = device::Block>
PENSTOCK_DEVICE int64_t gwrite(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                               uint64_t size, const void* buffer, Group group = {}) {
    FileSystemState& system = *fs.state;
    const auto begin = [=, &system](const auto& team, unsigned, unsigned) -> int64_t {
        return device::take_place(team, system, descriptor, offset, size, buffer);
    };
    const auto work = [=, &system](const auto& team, unsigned index, unsigned teams,
                                   int64_t at) -> int64_t {
        device::RangeRequest request;
        const int64_t answer = device::prepare_write(team, system, descriptor, at, size, buffer,
                                                     request);
        if (answer != 1) return answer;
        return device::write_part(team, index, teams, system, request);
    };
    return group.divide(begin, work, [](int64_t) {});
}

// Begins a gwrite: requests the pages that must be read before a part of them can be written, and
// returns without waiting for them.
//   offset, size, buffer  as for gwrite; only gwait reads `buffer`, which must live until then
// A block or a warp calls. The call may wait for pages that it requested and that find no room, but
// for nothing else. Returns a handle (>= 0) for one gwait, by any group of any kernel after this
// call. The cache gets no byte before that gwait returns; of two writes of the same bytes, the
// order of their gwaits decides which is last. A descriptor that appends reserves its range here:
// later appends go behind it, and it reads as zeros until the gwait. At most two pages are pinned,
// the first and the last of the range; all others, and pages that find no room, are left to gwait.
// The descriptor must stay open until the gwait. Errors: as gwrite; -EAGAIN as gread_async: then no
// range is reserved. A lost handle writes nothing and holds its pages as one of gread_async. Cost:
// a request to the host for each of the two pages that is not cached; no copy.
template <class Group = device::Block>
PENSTOCK_DEVICE AsyncHandle gwrite_async(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                                         uint64_t size, const void* buffer, Group group = {}) {
    FileSystemState& system = *fs.state;
    const auto prepare = [=, &system](const auto& team, device::RangeRequest& request) {
        const int64_t at = device::take_place(team, system, descriptor, offset, size, buffer);
        return device::prepare_write(team, system, descriptor, at, size, buffer, request);
    };
    return device::issue<Direction::kIn>(system, group, prepare);
}

// Makes durable what was written to a file so far: writes it back, and the host syncs it. A block
// or a warp calls; waits for the host. Returns 0. Errors: -EBADF; the errno of pages that could not
// be written back since gfsync or gclose last returned an error: they stay in the cache, and the
// next gfsync or gclose tries again. Cost: a check of every cached page of the file, the writes,
// and an fsync.
template <class Group = device::Block>
PENSTOCK_DEVICE int gfsync(DeviceFileSystem fs, Descriptor file, Group group = {}) {
    const bool open = group.once(
        [&]() -> bool { return device::find_file(*fs.state, file) != nullptr; });
    if (!open) return -device::kErrorBadDescriptor;
    const int64_t error = device::write_back(fs, file, group);
    return static_cast<int>(group.once([&]() -> int64_t {
        const int64_t synced = device::control_call(*fs.state, {ControlCall::kSync, file});
        return error != 0 ? error : synced;
    }));
}

// Truncates a file to `size` bytes, or extends it with zeros. A block or a warp calls; waits for
// the host. Returns 0. Errors: -EBADF, also when the file is not open for writing; -EFBIG beyond
// the size to which the file may grow (see gopen); the errno of the host: then the file is
// unchanged. Cost: a check of every cached page beyond `size`, and a trip to the host.
template <class Group = device::Block>
PENSTOCK_DEVICE int gftruncate(DeviceFileSystem fs, Descriptor file, uint64_t size,
                               Group group = {}) {
    return static_cast<int>(device::truncate(fs, file, size, group));
}

// Removes a file's name. Descriptors that are open stay valid. `path` is as for gopen. A block or a
// warp calls; waits for the host. Returns 0. Errors: those of unlink(2); -ENAMETOOLONG; -EFAULT.
// Cost: a trip to the host.
template <class Group = device::Block>
PENSTOCK_DEVICE int gunlink(DeviceFileSystem fs, const char* path, Group group = {}) {
    return static_cast<int>(group.once([&]() -> int64_t {
        if (path == nullptr) return -device::kErrorFault;
        return device::control_call(*fs.state, {ControlCall::kUnlink, 0, path});
    }));
}

// Tells a file's identity and modification time, as of the open, and its size. The size includes
// all that kernels wrote so far; it is shorter if a read found the file shorter.
//   out  one for each calling thread, any memory
// A block or a warp calls; never waits for the host. Returns 0. Errors: -EBADF; -EFAULT for a null
// `out`.
template <class Group = device::Block>
PENSTOCK_DEVICE int gstat(DeviceFileSystem fs, Descriptor descriptor, FileStatus* out,
                          Group group = {}) {
    struct Answer {
        FileStatus status;
        int error;
    };
    const Answer answer = group.once([&]() -> Answer {
        const FileState* file = device::find_file(*fs.state, descriptor);
        if (file == nullptr) return {{}, -device::kErrorBadDescriptor};
        const uint64_t size = device::DeviceWords::load(file->size, site::kRelaxed);
        return {{size, file->device, file->inode, file->modified_ns, file->mode}, 0};
    });
    if (out == nullptr) return -device::kErrorFault;
    if (answer.error == 0) *out = answer.status;
    return answer.error;
}

// Maps up to `size` bytes at `offset`: returns a pinned view into the page cache. It ends at the
// end of the page or of the file at the latest (POSIX-relaxed: it may map less than asked).
//   offset  bytes, >= 0, any alignment
//   size    bytes, any
// A block or a warp calls; waits for the page. On return its bytes are visible to all threads of
// the group. view.size is 0 at or beyond the end of the file. If the file is open for writing,
// view.writable is the address to write to. Every view with data needs its gmunmap. Errors, as a
// negative view.size: -EBADF; -EINVAL for a negative offset; -ENOMEM when views and asynchronous
// calls hold all frames they may: unmap views or complete calls first; the errno of the storage
// read. Cost: as gread of one page, without the copy.
template <class Group = device::Block>
PENSTOCK_DEVICE View gmmap(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                           uint64_t size, Group group = {}) {
    return group.once([&]() -> View {
        View view;
        const FileState* file = (descriptor & kMayNotRead) != 0
                                    ? nullptr
                                    : device::find_file(*fs.state, descriptor);
        if (file == nullptr || offset < 0) {
            view.size = file == nullptr ? -device::kErrorBadDescriptor : -device::kErrorInvalid;
            return view;
        }
        const uint64_t page_size = 1ull << fs.state->page_shift;
        const uint64_t left = page_size - (static_cast<uint64_t>(offset) & (page_size - 1));
        ReadaheadPlace* place = device::begin_read(device::LoneTeam<1>(), *fs.state, group.place(),
                                                   descriptor, offset, size < left ? size : left);
        view = device::map_page(*fs.state, descriptor, static_cast<uint64_t>(offset), size, place);
        device::end_read(place);
        if (view.data != nullptr && (descriptor & kMayWrite) != 0) {
            device::count_write(*fs.state, *file, static_cast<uint64_t>(offset) / page_size, 1);
            view.writable = const_cast<std::byte*>(view.data);
        }
        return view;
    });
}

// Hands the bytes written through a view to the host, and waits until the host has them. All of a
// view that may be written counts as written, here and in gmunmap.
//   view  one for each calling thread, all from one gmmap
// A block or a warp calls, after all of its stores. Returns 0. Errors: -EINVAL for an empty view,
// or one that may not be written; -EBADF as gmunmap; a failed write-back, as gfsync. Cost: a write.
template <class Group = device::Block>
PENSTOCK_DEVICE int gmsync(DeviceFileSystem fs, const View& view, Group group = {}) {
    return group.once([&]() -> int {
        if (view.entry == nullptr || view.writable == nullptr) return -device::kErrorInvalid;
        return device::write_view(*fs.state, view);
    });
}

// Unmaps a view. It is empty afterwards, and its bytes must not be accessed any more. What was
// written through it is written back later, as for gwrite.
//   view  one for each calling thread, all from one gmmap
// Unmap or sync a view that may be written before the last descriptor that may write the file is
// closed. After that close, what was stored through the view is lost, and its page is dropped at
// once or by a later open. A block or a warp calls; waits for the host only in that case. Returns
// 0. Errors: -EINVAL for an empty view; -EBADF after that close.
template <class Group = device::Block>
PENSTOCK_DEVICE int gmunmap(DeviceFileSystem fs, View& view, Group group = {}) {
    PageEntry* entry = view.entry;
    const int result = group.once([&]() -> int {
        if (entry == nullptr) return -device::kErrorInvalid;
        device::SeenPage page;
        const bool kept = view.writable == nullptr || device::mark_view(*fs.state, view, page);
        device::unpin<device::DeviceWords>(*entry);
        device::DeviceWords::fetch_sub(fs.state->held_pins, kViewPin, site::kRelaxed);
        if (kept) return 0;
        // The stored bytes are in no file, so a later open must not read this page.
        if (!device::drop_seen(*fs.state, page)) {
            device::ControlRequest invalidate{ControlCall::kInvalidate};
            invalidate.size = page.owner >> 48;
            (void)device::control_call(*fs.state, invalidate);
        }
        return -device::kErrorBadDescriptor;
    });
    view = {};
    return result;
}

// Says how a file, or a range of it, will be used.
//   offset, size  bytes, offset >= 0; size 0: to the end of the file. For kStrided: the distance
//                 from one read to the next, positive or negative, and the size of a read
//   advice        one of the following
// For the whole file, as long as it is open; the last advice counts:
//   kNormal      streams of reads are detected
//   kSequential  windows from the first read on, and large ones
//   kStrided     the same, `offset` bytes apart; only a multiple of the page size helps. Reads
//                without a gap are kSequential
//   kRandom      no windows
//   kNoReuse     pages get no second chance from Replacement::kRings and kClock. With kRings they
//                also take turns in a few frames of the block's ring, which keeps its other pages.
//                kGlobalLra ignores the advice
// For the range, immediately:
//   kWillNeed    its pages are requested, in order: up to a quarter of the cache. Up to four
//                windows (64 pages, at most 1 MiB) are in flight for a warp or a block. Pages that
//                find no room now are left out
//   kDontNeed    pages that lie wholly in it and are not pinned give up their frames
// A block or a warp calls; never waits. Returns 0. Errors: -EBADF; -EINVAL for a negative offset, a
// distance of 0 or beyond 2^43, or unknown advice. Cost: kWillNeed a check of each page and a
// request for each window, kDontNeed an atomic for each page, the others a store.
template <class Group = device::Block>
PENSTOCK_DEVICE int gadvise(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                            uint64_t size, Advice advice, Group group = {}) {
    FileSystemState& system = *fs.state;
    const device::AdvisedRange range{descriptor, offset, size, advice};
    const auto begin = [&system, range](const auto& team, unsigned place, unsigned) {
        return device::begin_advice(team, system, place, range);
    };
    const auto work = [&system, range](const auto& team, unsigned index, unsigned teams,
                                       FileState* file) -> int64_t {
        return device::advise_part(team, index, teams, system, file, range);
    };
    return static_cast<int>(group.divide(begin, work, [](FileState*) {}));
}

}  // namespace penstock
