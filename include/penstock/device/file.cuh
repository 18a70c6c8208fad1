// Files inside kernels: gopen gclose gread gread_async gwait gwrite gwrite_async gfsync gftruncate
// gunlink gstat gmmap gmsync gmunmap gadvise.
//
// `Group` is who calls, together and with the same arguments; the result is the same in all, and
// every call is a barrier of theirs. device::Block, the default: all threads of the block, of which
// none may have returned before. device::OneWarp: the threads of a warp that have not returned;
// other warps need not call. (device::Warps and device::Lanes are the same as a GPU does them, also
// on the CPU backend.) Counts are bytes; errors are negative errno values. No call waits without
// end: when the host stops serving, calls that wait return its abort code or -EOWNERDEAD. The calls
// are those of GPUfs (seed 000, section 2.2), complete: end of file, errors and any alignment
// included.
//
// Who sees what was written, and when:
//   1. One GPU. A group's write is seen by another group of that GPU which reads behind it: the
//      writer's call has returned (of a gwrite_async: its gwait), and the two have synchronised at
//      device scope since (an atomic with release and acquire, or the end of a kernel). Reads and
//      writes of the same bytes at the same time give each byte as it was or as it is written.
//        gwrite(fs, file, 0, 64, line);              // block 0
//        if (lane == 0) flag.store(1, release);
//        while (flag.load(acquire) == 0) {}          // block 1
//        gread(fs, file, 0, 64, copy);               // what block 0 wrote
//   2. Between processors: close, then open. What was written here is in the file for every reader
//      when the last gclose of a descriptor that may write has returned; what others write is seen
//      by a gopen behind their close, if nobody here had the file open since before they wrote. A
//      file whose time of change is within two ticks of the clock counts as changed.
//        gwrite(fs, file, 0, 64, line);              // a kernel
//        gclose(fs, file);
//        pread(descriptor, copy, 64, 0);             // the host, behind the kernel: what it wrote
//        pwrite(descriptor, line, 64, 0);
//        gopen(fs, path, kOpenReadOnly);             // a kernel behind that reads it
//   3. Writers on different processors at the same time merge at 64 bytes: of a granule of 64 bytes
//      (aligned in the file) of which anything was written here, all of it goes to the file, and
//      the last one to do so wins; no other byte of the file is touched. A view that may be
//      written counts as written, all of it.
//        gwrite(fs, file, 100, 28, data);   // bytes 64 to 127 of the file will be as they are here
//   4. kOpenWriteOnce: nothing of the file is read, and it need not be readable. Bytes that nobody
//      wrote keep the file's; one that is written twice may end as either. Of granules that are
//      written whole all goes through the page cache; a part of one costs a trip to the host.
//        gopen(fs, path, kOpenWriteOnly | kOpenWriteOnce);
//        gwrite(fs, file, block * 4096, 4096, row);  // each block its own row: no page is read
//   5. gfsync: what was written before is on the disk. gclose and what makes room hand it to the
//      operating system only.
//        gwrite(fs, log, at, size, record);
//        if (gfsync(fs, log) == 0) answer();         // the record outlives a crash
//   6. kOpenNoSync, where all who may write a file have said so: neither close nor sync writes it,
//      and what of it is in the cache is gone with the last of them. Its pages go to the file only
//      to make room. When one opens it without, all that is dirty then is his to have written.
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

// What gstat tells.
struct FileStatus {
    uint64_t size = 0;        // bytes
    uint64_t device = 0;      // st_dev
    uint64_t inode = 0;       // st_ino
    int64_t modified_ns = 0;  // st_mtim, nanoseconds since 1970
    uint64_t mode = 0;        // file type bits of st_mode
};

// What gopen returns: a Descriptor, which needs all of its 64 bits. An int would lose the half that
// later calls look at, so it converts to nothing smaller. `auto` keeps it as it is.
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

    // With an errno or 0, as a Descriptor is compared.
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
// kernel may use, counted: each gopen wants its gclose. Close-to-open: a file that changed since
// its pages were cached is read afresh. A file grows to twice the size that it had when it was
// opened, or to kGrowingWordsMin * 512 pages, at most. Errors: those of open(2); -EISDIR, -ESPIPE,
// -ENOTSUP (no regular file), -EFBIG (more pages than the page table has room for), -ENFILE
// (kFilesMax files known, all in use), -ENAMETOOLONG, -EINVAL (flags), -EFAULT (null path), -EBUSY
// (kOpenWriteOnce of a file that is open otherwise, or the other way round), -EAGAIN (its last
// writer has been dropping what could not be written for 10 s). Cost: a trip to the
// host, an open and a stat there; kOpenTruncate of a file that is open here, a gftruncate more.
template <class Group = device::Block>
PENSTOCK_DEVICE OpenedDescriptor gopen(DeviceFileSystem fs, const char* path, int flags,
                                       Group group = {}) {
    const auto open = [&](int how) -> int64_t {
        return group.once([&]() -> int64_t {
            if (path == nullptr) return -device::kErrorFault;
            device::Wait wait(*fs.state);
            for (const uint64_t began = device::now_ns();;) {
                const uint64_t& hand = fs.state->port_hand;  // counts calls: its closing is one
                const uint64_t seen = device::DeviceWords::load(hand, site::kRelaxed);
                const int64_t answer = device::control_call(*fs.state,
                                                            {ControlCall::kOpen, 0, path, how});
                const bool late = device::now_ns() - began > limits::kGivenUpNs;
                if (answer != -device::kErrorAgain || late) return answer;
                how &= ~kOpenExclusive;  // it was not there: this call has made it
                if (const int error = wait.step(&hand, seen + 1); error != 0) return error;
            }
        });
    };
    const Descriptor opened = open(flags);
    if (opened != -device::kErrorBusy || (flags & kOpenTruncate) == 0) return {opened};
    // Open already: its pages are to be cut with it, which GPU threads do. If it was not to be
    // there before, it was not: another has opened what this call has made.
    const Descriptor file = open(flags & ~(kOpenTruncate | kOpenExclusive));
    const int64_t cut = file < 0 ? 0 : device::truncate(fs, file, 0, group);
    if (cut == 0) return {file};
    const int lost = gclose(fs, file, group);  // as the last that may write: told to nobody else
    return {lost != 0 ? lost : cut};
}

// Gives a descriptor back; its pages stay cached. The last one that may write a file writes it back
// first. A block or a warp calls; waits for the host. 0, or -EBADF; what could not be written back
// since an error was returned last: -EIO, -ENOSPC, -EDQUOT ... (the descriptor is given back, and
// such pages are dropped). Cost: a trip to the host; two, and the writes, for the last writer.
template <class Group>
PENSTOCK_DEVICE int gclose(DeviceFileSystem fs, Descriptor file, Group group) {
    const device::Closed closed = device::close_file(fs, file, Opener::kKernel, group);
    return static_cast<int>(closed.written != 0 ? closed.written : closed.answer);
}

// Reads `size` bytes at `offset` into `buffer` through the page cache.
//   offset  bytes, >= 0, any alignment
//   size    bytes, any
//   buffer  one for the whole group, device or shared memory, any alignment; fastest where it
//           agrees with the offset modulo 16
// A block or a warp calls; all its misses are submitted together, then waited for. On return the
// bytes are visible to all threads of the group. Returns the bytes read: fewer than `size` only at
// the end of the file, 0 beyond it. Errors: -EBADF, -EINVAL (negative offset), -EFAULT (null
// buffer), and the errno of the storage read if a page of the range could not be read (a later
// gread asks for that page again); what is in `buffer` then is undefined. Cost: a hit is an atomic
// addition, a copy and an atomic subtraction for each page; a miss also a request to the host. Seed
// 000, section 2.2.
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

// The first half of a gread: asks for the range and returns without waiting for it.
//   offset, size, buffer  as for gread; `buffer` is written by gwait only, and must live until then
// A block or a warp calls; may wait for pages that it asked for and has no room for, for nothing
// else. Returns a handle (>= 0) for one gwait, by any group of any kernel behind this call. Up to
// kAsyncPagesMax pages of the range (at most 32 for each warp of the group on a GPU, 64 on the CPU
// backend) are pinned and on their way; what lies beyond, or finds no room, is read by gwait.
// Errors: -EBADF, -EINVAL, -EFAULT as gread; -EAGAIN: this warp, or this block's first, has
// kAsyncCallsMax handles, of gwrite_async too, that nobody has waited for (one may have more on a
// device of more than kAsyncTableMax / kAsyncCallsMax warps: until all have kAsyncTableMax). A
// handle that is lost holds its pages until FileSystem::reclaim(). Cost: as gread, without the
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

// The second half of a gread or a gwrite: waits for what gread_async asked for and copies it out;
// or for what gwrite_async asked for, and writes.
//   handle  of a gread_async or gwrite_async; good for one gwait, whatever that returns
// A block or a warp calls, the one that has begun it or another; waits. On return the bytes that
// were read are visible to all threads of the group, and those that were written are as if gwrite
// had returned. Returns as gread or gwrite would have; -EBADF: the file was closed meanwhile;
// -EINVAL: no such handle, or it was waited for. Cost: the copy, and as gread or gwrite for what
// had no room.
template <class Group = device::Block>
PENSTOCK_DEVICE int64_t gwait(DeviceFileSystem fs, AsyncHandle handle, Group group = {}) {
    FileSystemState& system = *fs.state;
    const auto begin = [&system, handle](const auto& team, unsigned place, unsigned) {
        return device::begin_wait(team, system, place, handle);
    };
    const auto work = [&system](const auto& team, unsigned index, unsigned teams,
                                AsyncCall* call) -> int64_t {
        if (call == nullptr) return -device::kErrorInvalid;
        return call->direction == Direction::kIn
                   ? device::wait_write_part(team, index, teams, system, *call)
                   : device::wait_part<Direction::kOut>(team, index, teams, system, *call);
    };
    return group.divide(begin, work, [](AsyncCall* call) { device::end_wait(call); });
}

// Writes `size` bytes from `buffer` to the file at `offset`, through the page cache. The file grows
// where it must, with zeros between.
//   offset  bytes, >= 0, any alignment; of a descriptor that appends (kOpenAppend) of no account:
//           behind all that is in the file then, in one piece
//   size    bytes, any
//   buffer  one for the whole group, device or shared memory, any alignment; only read
// A block or a warp calls; waits for pages of which a part is written, and for room. Who sees it,
// and when: above. Returns `size`. Errors: -EBADF (also: not open for writing), -EINVAL (negative
// offset), -EFAULT (null buffer), -EFBIG (beyond what the file may grow to: see gopen), the errno
// of the storage read if a page that is written in part could not be read, that of writes where no
// page could be written back and there is no room (-ENOSPC ...); part of the range may be written
// then. Cost: as gread, and two atomics a page to mark it; a page that is written as a whole, or
// beyond the file's end, is not read.
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

// The first half of a gwrite: asks for the pages that must be read before a part of them can be
// written, and returns without waiting for them.
//   offset, size, buffer  as for gwrite; `buffer` is read by gwait only, and must live until then
// A block or a warp calls; may wait for pages that it asked for and has no room for, for nothing
// else. Returns a handle (>= 0) for one gwait, by any group of any kernel behind this call; nothing
// is in the file's cache before that returns, and which of two writes of the same bytes is last
// their gwaits say. A descriptor that appends takes its room here: later appends go behind it, and
// it reads as zeros until then. At most two pages are pinned, those that the range begins and ends
// in; all others, and those where there is no room, are left to gwait. The descriptor must stay
// open until then. Errors: as gwrite; -EAGAIN: as gread_async, and no room is taken. A handle that
// is lost writes nothing, and holds its pages as one of gread_async. Cost: a request to the host
// for each of the two pages that is not in the cache; no copy.
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

// Makes what was written to a file so far last: writes it back, and has the host sync it. A block
// or a warp calls; waits for the host. 0; -EBADF; what could not be written back since an error was
// returned last, by this or by gclose: it is still in the cache, and tried again by the next one.
// Cost: a look at every page of the file that is cached, the writes, and an fsync.
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

// Cuts a file off at `size` bytes, or makes it longer, with zeros. A block or a warp calls; waits
// for the host. 0; -EBADF (also: not open for writing), -EFBIG (beyond what the file may grow to:
// see gopen), what the host says: the file is as it was then. Cost: a look at every
// page beyond `size` that is cached, and a trip to the host.
template <class Group = device::Block>
PENSTOCK_DEVICE int gftruncate(DeviceFileSystem fs, Descriptor file, uint64_t size,
                               Group group = {}) {
    return static_cast<int>(device::truncate(fs, file, size, group));
}

// Takes a name away; who has the file open goes on with it. `path` as for gopen. A block or a warp
// calls; waits for the host. 0; what unlink(2) says, -ENAMETOOLONG, -EFAULT. Cost: a trip to the
// host.
template <class Group = device::Block>
PENSTOCK_DEVICE int gunlink(DeviceFileSystem fs, const char* path, Group group = {}) {
    return static_cast<int>(group.once([&]() -> int64_t {
        if (path == nullptr) return -device::kErrorFault;
        return device::control_call(*fs.state, {ControlCall::kUnlink, 0, path});
    }));
}

// Tells identity and modification time, as of the open, and the size: that with all that was
// written here so far, or shorter if a read found it so.
//   out  of each calling thread, any memory
// A block or a warp calls; never waits for the host. 0, -EBADF, -EFAULT (null `out`).
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

// Maps up to `size` bytes at `offset`: a pinned view into the page cache, at most to the end of the
// page and of the file (POSIX-relaxed: may map less than asked).
//   offset  bytes, >= 0, any alignment
//   size    bytes, any
// A block or a warp calls; waits for the page. On return its bytes are visible to all threads of
// the group. view.size is 0 at or beyond the end of the file, or negative: -EBADF, -EINVAL
// (negative offset), -ENOMEM (views and calls that were begun hold all frames they may: unmap some,
// wait for some), the errno of the storage read. view.writable is where it may be written, if the
// file is open for that. Every view with data wants its gmunmap. Cost: as gread of one page,
// without the copy.
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

// Hands what was written through a view to the host, and waits until that has it. A view that may
// be written counts as written, all of it, here and in gmunmap.
//   view  of each calling thread, all from one gmmap
// A block or a warp calls, behind all of its stores. 0; -EINVAL for an empty view, or one that may
// not be written; -EBADF: as gmunmap; what could not be written back, as gfsync. Cost: a write.
template <class Group = device::Block>
PENSTOCK_DEVICE int gmsync(DeviceFileSystem fs, const View& view, Group group = {}) {
    return group.once([&]() -> int {
        if (view.entry == nullptr || view.writable == nullptr) return -device::kErrorInvalid;
        return device::write_view(*fs.state, view);
    });
}

// Lets a view go; it is empty afterwards, and its bytes must not be touched any more. What was
// written through it is written back in time, as by gwrite.
//   view  of each calling thread, all from one gmmap
// A view that may be written is to be let go, or synced, before its file is closed by the last that
// may write it: behind that, what was stored is lost, and the page dropped, or not trusted by who
// opens the file again. A block or a warp calls; waits for the host in that case only. 0; -EINVAL
// for an empty view; -EBADF: too late.
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
        // What was stored there is in no file: who opens it again is not to read it.
        if (!device::drop_seen(*fs.state, page)) {
            device::ControlRequest distrust{ControlCall::kDistrust};
            distrust.size = page.owner >> 48;
            (void)device::control_call(*fs.state, distrust);
        }
        return -device::kErrorBadDescriptor;
    });
    view = {};
    return result;
}

// Says how a file, or a range of it, will be used.
//   offset, size  bytes, offset >= 0; size 0: to the end of the file. Of kStrided: the distance
//   from
//                 one read to the next, positive or negative, and the size of a read
//   advice  For the whole file, as long as it is open; the last counts:
//             kNormal      streams of reads are found out by themselves
//             kSequential  windows from the first read on, and large ones
//             kStrided     likewise, `offset` bytes apart; only a multiple of the page size helps.
//                          Reads that leave no gap are kSequential
//             kRandom      no windows
//             kNoReuse     what is read has no second chance, by Replacement::kRings and kClock;
//                          by kRings it also takes turns in a few frames of its block's ring,
//                          which else keeps what it has. kGlobalLra takes no notice
//           For the range, at once:
//             kWillNeed    its pages are asked for, in order: up to a quarter of the cache, four
//                          windows (64 pages, at most 1 MiB) on their way for a warp or a block at
//                          a time. What has no room now is left out
//             kDontNeed    pages that lie wholly in it and that nobody holds give up their frames
// A block or a warp calls; never waits. 0, -EBADF, -EINVAL (negative offset, distance 0 or beyond
// 2^43, unknown advice). Cost: kWillNeed a look at each page and a request for each window,
// kDontNeed an atomic for each page, the others a store.
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
