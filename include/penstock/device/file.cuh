// Files inside kernels: gopen gclose gread gstat gmmap gmunmap gadvise.
//
// All threads of a block call together with the same arguments, and none of them may have returned
// before; the result is the same in all. Every call is a barrier of the block. Counts are bytes;
// errors are negative errno values. No call waits without end: when the host stops serving, calls
// that wait return its abort code or -EOWNERDEAD. `Group` is who calls: the block as suits the
// backend, or device::Warps, the block as its warps, also on the CPU backend. The calls are those
// of GPUfs (seed 000, section 2.2), complete: end of file, errors and any alignment included.
#pragma once

#include "penstock/device/control_port.cuh"
#include "penstock/device/errors.cuh"
#include "penstock/device/handle.h"
#include "penstock/device/page_cache.cuh"

namespace penstock {

// What gstat tells.
struct FileStatus {
    uint64_t size = 0;        // bytes
    uint64_t device = 0;      // st_dev
    uint64_t inode = 0;       // st_ino
    int64_t modified_ns = 0;  // st_mtim, nanoseconds since 1970
    uint64_t mode = 0;        // file type bits of st_mode
};

// A pinned piece of a file in the page cache. Valid from gmmap to gmunmap; read only.
struct View {
    const std::byte* data = nullptr;  // device memory; aligned as its offset modulo the page size
    int64_t size = 0;            // bytes that may be read, or a negative errno (then data is null)
    PageEntry* entry = nullptr;  // whose pin the view holds; for gmunmap
};

namespace device {

// The file behind a descriptor, or null.
PENSTOCK_DEVICE inline FileState* find_file(FileSystemState& system, Descriptor descriptor) {
    if (descriptor < 0 || descriptor_system(descriptor) != system.system) return nullptr;
    const uint32_t slot = descriptor_slot(descriptor);
    if (slot >= limits::kFilesMax) return nullptr;
    FileState& file = system.files[slot];
    const uint64_t generation = DeviceWords::load(file.generation, site::kRelaxed);
    const bool open = (generation & 1) != 0 &&
                      (generation & 0xffffffff) == descriptor_generation(descriptor);
    return open ? &file : nullptr;
}

// Pins the batch's pages and asks for those that are not there (see pin_pages and fetch_pages). 0,
// or -EBADF, with nothing held: the file was closed meanwhile, and its slot may serve another by
// now. Once a page is pinned and the file seen open, its slot cannot change hands.
template <class Team>
PENSTOCK_DEVICE int hold_pages(const Team& team, FileSystemState& system, Descriptor descriptor,
                               Batch<Team>& batch) {
    const uint32_t slot = descriptor_slot(descriptor);
    const bool valid = pin_pages(team, system, system.files[slot], batch);
    if (team.any(find_file(system, descriptor) == nullptr)) {
        unpin_pages(team, batch, 0);
        return -kErrorBadDescriptor;
    }
    if (!valid) fetch_pages(team, system, slot, batch);
    return 0;
}

// So often a page is asked for again because its file was closed before it was served. More: the
// device was not told that this descriptor is closed.
constexpr unsigned kClosedMax = 64;

struct ReadRequest {
    Descriptor descriptor;
    uint64_t offset;  // first byte in the file
    uint64_t size;    // bytes as asked for, the same for all teams; may reach beyond the file
    uint64_t end;     // one past the last byte to read: as one team saw the file, which may shrink
    std::byte* buffer;
};

// Pages that a team takes at a time: as many as it can, or fewer so that every team has a part. It
// must be the same for all teams, or pages would be read twice or by nobody: so nothing counts here
// that may change meanwhile.
PENSTOCK_BOTH constexpr unsigned pages_of_run(const ReadRequest& request, unsigned page_shift,
                                              unsigned teams, unsigned most) {
    const uint64_t many = uint64_t{teams} * most;
    if (request.size >> page_shift >= many) return most;
    const uint64_t page_size = 1ull << page_shift;
    const uint64_t bytes = (request.offset & (page_size - 1)) + request.size;
    const uint64_t count = (bytes + page_size - 1) >> page_shift;
    return count >= many ? most : static_cast<unsigned>((count + teams - 1) / teams);
}
static_assert(pages_of_run({0, 0, 1 << 20, 1 << 20, nullptr}, 16, 8, 32) == 2);
static_assert(pages_of_run({0, 1, 1 << 20, 1 << 20, nullptr}, 16, 8, 32) == 3);  // 17 pages
static_assert(pages_of_run({0, 4095, 2, 4097, nullptr}, 12, 8, 32) == 1);
static_assert(pages_of_run({0, 4095, ~0ull, 4097, nullptr}, 12, 8, 32) == 32);

// Copies the batch's part of the request out of its frames, waiting for each page in turn. 0 or
// -errno.
template <class Team>
PENSTOCK_DEVICE int copy_out(const Team& team, FileSystemState& system, const ReadRequest& request,
                             Batch<Team>& batch) {
    const uint64_t page_size = 1ull << system.page_shift;
    const std::byte* from = nullptr;  // a run of bytes that lie together in adjacent frames
    std::byte* to = nullptr;
    size_t size = 0;
    team.sync();  // votes and shuffles order no memory: what the lane that pinned has acquired, all
                  // have now
    for (unsigned i = 0; i < batch.count; ++i) {
        const unsigned owner = i % team.lanes(), k = i / team.lanes();
        uint64_t seen = team.broadcast(batch.pages[Team::kPagesPerLane == 1 ? 0 : k].seen, owner);
        if (state_of(seen) != PageState::kValid) {
            if (size > 0) team.copy(to, from, size);
            size = 0;
            int error = 0;
            if (team.lane() == owner)
                error = wait_for_page(system, *batch.pages[k].entry, batch.pages[k].seen);
            error = team.broadcast(error, owner);
            if (error != 0) {
                settle_pages(team, system, batch, i + 1);
                return error;
            }
            seen = team.broadcast(batch.pages[k].seen, owner);
            team.sync();  // as above, for the lane that waited
        }
        const uint64_t page_first = (batch.first + i) << system.page_shift;
        const uint64_t first = page_first > request.offset ? page_first : request.offset;
        const uint64_t end = page_first + page_size < request.end ? page_first + page_size
                                                                  : request.end;
        const std::byte* piece = system.frames + (uint64_t{frame_of(seen)} << system.page_shift) +
                                 (first - page_first);
        if (size > 0 && piece == from + size) {
            size += end - first;
            continue;
        }
        if (size > 0) team.copy(to, from, size);
        from = piece;
        to = request.buffer + (first - request.offset);
        size = end - first;
    }
    if (size > 0) team.copy(to, from, size);
    team.sync();
    return 0;
}

// One team's part of a read: every `teams`-th run of pages from the `index`-th on. Returns the
// bytes that are good from the request's start as far as this team can tell (all of them, unless
// the file became shorter).
template <class Team>
PENSTOCK_DEVICE int64_t read_part(const Team& team, unsigned index, unsigned teams,
                                  FileSystemState& system, const ReadRequest& request) {
    const FileState& file = system.files[descriptor_slot(request.descriptor)];
    const PageIndex last = (request.end - 1) >> system.page_shift;
    // kPages also where the last warp is short.
    const unsigned pages = pages_of_run(request, system.page_shift, teams, Batch<Team>::kPages);
    PageIndex next = (request.offset >> system.page_shift) + uint64_t{index} * pages;
    Batch<Team> batch;
    while (next <= last) {
        const PageIndex stop = next + pages - 1 < last ? next + pages : last + 1;
        Wait wait(system);
        unsigned closed = 0;
        unsigned most = team.lanes() * Team::kPagesPerLane;
        while (next < stop) {
            batch.first = next;
            batch.count = stop - next < most ? static_cast<unsigned>(stop - next) : most;
            int error = hold_pages(team, system, request.descriptor, batch);
            if (error != 0) return error;
            if (batch.count == 0) {
                // No frame or leaf just now: others hold them all and will let go; or this team
                // did, with pages behind the first. So it goes on page by page.
                most = 1;
                if (team.lane() == 0) error = wait_for_room(system, wait);
                error = team.broadcast(error, 0);
                if (error != 0) return error;
                continue;
            }
            error = copy_out(team, system, request, batch);
            const unsigned count = batch.count;
            unpin_pages(team, batch, 0);
            if (error == -static_cast<int>(kErrorClosed)) {
                // A page of somebody who asked by a descriptor that was closed since.
                const bool open = !team.any(find_file(system, request.descriptor) == nullptr);
                if (open && ++closed < kClosedMax) continue;
                error = -kErrorBadDescriptor;
            }
            if (error != 0) return error;
            next += count;
        }
        next += uint64_t{teams - 1} * pages;
    }
    // A read that found the file shorter than it was says so in its size, before any page of it is
    // published.
    const uint64_t size = DeviceWords::load(file.size, site::kRelaxed);
    if (size >= request.end) return static_cast<int64_t>(request.end - request.offset);
    return size > request.offset ? static_cast<int64_t>(size - request.offset) : 0;
}

// Pins one page for a view, in one lane.
PENSTOCK_DEVICE inline View map_page(FileSystemState& system, Descriptor descriptor,
                                     uint64_t offset, uint64_t size) {
    View view;
    const FileState& file = system.files[descriptor_slot(descriptor)];
    const uint64_t file_size = DeviceWords::load(file.size, site::kRelaxed);
    if (offset >= file_size || size == 0) return view;
    if (DeviceWords::fetch_add(system.view_pins, 1, site::kRelaxed) >= system.views_max) {
        DeviceWords::fetch_sub(system.view_pins, 1, site::kRelaxed);
        view.size = -kErrorNoMemory;
        return view;
    }
    const LoneTeam<1> team;
    Batch<LoneTeam<1>> batch;
    Wait wait(system);
    unsigned closed = 0;
    int error = 0;
    for (;;) {
        batch.first = offset >> system.page_shift;
        batch.count = 1;
        error = hold_pages(team, system, descriptor, batch);
        if (error != 0) break;
        if (batch.count == 0) {
            error = wait_for_room(system, wait);
            if (error != 0) break;
            continue;
        }
        error = wait_for_page(system, *batch.pages[0].entry, batch.pages[0].seen);
        if (error != -static_cast<int>(kErrorClosed)) break;
        unpin_pages(team, batch, 0);  // asked for by a descriptor that was closed since
        error = -kErrorBadDescriptor;
        if (++closed == kClosedMax) break;
    }
    if (error != 0) {
        unpin_pages(team, batch, 0);
        DeviceWords::fetch_sub(system.view_pins, 1, site::kRelaxed);
        view.size = error;
        return view;
    }
    const uint64_t in_page = offset & ((1ull << system.page_shift) - 1);
    uint64_t length = (1ull << system.page_shift) - in_page;
    const uint64_t now = DeviceWords::load(file.size, site::kRelaxed);
    const uint64_t left = now > offset ? now - offset : 0;
    if (length > left) length = left;
    if (length > size) length = size;
    view.data = system.frames + (uint64_t{frame_of(batch.pages[0].seen)} << system.page_shift) +
                in_page;
    view.size = static_cast<int64_t>(length);
    view.entry = batch.pages[0].entry;
    return view;
}

}  // namespace device

// Opens a file for reading.
//   path   NUL-terminated, at most 4,095 bytes, in memory that GPU threads can read; relative to
//          the host process's directory
//   flags  O_RDONLY (0)
// A block calls; waits for the host. Returns a descriptor (>= 0) that any block of any kernel may
// use, counted: each gopen wants its gclose. Close-to-open: a file that changed since its pages
// were cached is read afresh. Errors: those of open(2); -EISDIR, -ESPIPE, -ENOTSUP (no regular
// file), -EFBIG (more pages than the page table has room for), -ENFILE (kFilesMax files known, all
// in use), -ENAMETOOLONG, -EINVAL (flags), -EFAULT (null path).
// Cost: a trip to the host, an open and a stat there.
template <class Group = device::Block>
PENSTOCK_DEVICE Descriptor gopen(DeviceFileSystem fs, const char* path, int flags,
                                 Group group = {}) {
    return group.once([&]() -> int64_t {
        if (path == nullptr) return -device::kErrorFault;
        return device::control_call(*fs.state, {ControlCall::kOpen, 0, path, flags});
    });
}

// Gives a descriptor back; its pages stay cached. A block calls; waits for the host. 0, or -EBADF.
// Cost: a trip to the host.
template <class Group = device::Block>
PENSTOCK_DEVICE int gclose(DeviceFileSystem fs, Descriptor file, Group group = {}) {
    return static_cast<int>(group.once([&]() -> int64_t {
        if (device::find_file(*fs.state, file) == nullptr) return -device::kErrorBadDescriptor;
        return device::control_call(*fs.state, {ControlCall::kClose, file, nullptr, 0});
    }));
}

// Reads `size` bytes at `offset` into `buffer` through the page cache.
//   offset  bytes, >= 0, any alignment
//   size    bytes, any
//   buffer  one for the whole block, device or shared memory, any alignment; fastest where it
//           agrees with the offset modulo 16
// A block calls; all its misses are submitted together, then waited for. On return the bytes are
// visible to all threads of the block. Returns the bytes read: fewer than `size` only at the end of
// the file, 0 beyond it. Errors: -EBADF, -EINVAL (negative offset), -EFAULT (null buffer), and the
// errno of the storage read if a page of the range could not be read (a later gread asks for that
// page again); what is in `buffer` then is undefined.
// Cost: a hit is an atomic addition, a copy and an atomic subtraction for each page; a miss also a
// request to the host. Seed 000, section 2.2.
template <class Group = device::Block>
PENSTOCK_DEVICE int64_t gread(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                              uint64_t size, void* buffer, Group group = {}) {
    return group.divide([=](const auto& team, unsigned index, unsigned teams) -> int64_t {
        constexpr uint64_t kClosed = ~0ull;
        FileSystemState& system = *fs.state;
        const FileState* file = device::find_file(system, descriptor);
        // What lane 0 sees counts for its team: the file may be closed or cut just now, and lanes
        // that saw different things would part ways.
        uint64_t file_size = file == nullptr
                                 ? kClosed
                                 : device::DeviceWords::load(file->size, site::kRelaxed);
        file_size = team.broadcast(file_size, 0);
        if (file_size == kClosed) return -device::kErrorBadDescriptor;
        if (offset < 0) return -device::kErrorInvalid;
        if (size == 0) return 0;
        if (buffer == nullptr) return -device::kErrorFault;
        const uint64_t first = static_cast<uint64_t>(offset);
        if (first >= file_size) return 0;
        const uint64_t end = size < file_size - first ? first + size : file_size;
        return device::read_part(team, index, teams, system,
                                 {descriptor, first, size, end, static_cast<std::byte*>(buffer)});
    });
}

// Tells size, identity and modification time, as of the open (the size: or shorter if a read found
// it so).
//   out  of each calling thread, any memory
// A block calls; never waits for the host. 0, -EBADF, -EFAULT (null `out`).
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
// A block calls; waits for the page. On return its bytes are visible to all threads of the block.
// view.size is 0 at or beyond the end of the file, or negative: -EBADF, -EINVAL (negative offset),
// -ENOMEM (views hold all frames they may: unmap some), the errno of the storage read. Every view
// with data wants its gmunmap. Cost: as gread of one page, without the copy.
template <class Group = device::Block>
PENSTOCK_DEVICE View gmmap(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                           uint64_t size, Group group = {}) {
    return group.once([&]() -> View {
        View view;
        FileState* file = device::find_file(*fs.state, descriptor);
        if (file == nullptr || offset < 0) {
            view.size = file == nullptr ? -device::kErrorBadDescriptor : -device::kErrorInvalid;
            return view;
        }
        return device::map_page(*fs.state, descriptor, static_cast<uint64_t>(offset), size);
    });
}

// Lets a view go; it is empty afterwards, and its bytes must not be read any more.
//   view  of each calling thread, all from one gmmap
// A block calls; never waits for the host. 0, or -EINVAL for an empty view.
template <class Group = device::Block>
PENSTOCK_DEVICE int gmunmap(DeviceFileSystem fs, View& view, Group group = {}) {
    PageEntry* entry = view.entry;
    const int result = group.once([&]() -> int {
        if (entry == nullptr) return -device::kErrorInvalid;
        device::unpin<device::DeviceWords>(*entry);
        device::DeviceWords::fetch_sub(fs.state->view_pins, 1, site::kRelaxed);
        return 0;
    });
    view = {};
    return result;
}

// Says how a range will be used. Recorded with the file (the last advice counts, for the whole
// file); nothing acts on it yet.
//   offset, size  bytes, offset >= 0
// A block calls; never waits for the host. 0, -EBADF, -EINVAL (negative offset, unknown advice).
template <class Group = device::Block>
PENSTOCK_DEVICE int gadvise(DeviceFileSystem fs, Descriptor descriptor, int64_t offset,
                            [[maybe_unused]] uint64_t size, Advice advice, Group group = {}) {
    return group.once([&]() -> int {
        FileState* file = device::find_file(*fs.state, descriptor);
        if (file == nullptr) return -device::kErrorBadDescriptor;
        if (offset < 0 || static_cast<uint32_t>(advice) > static_cast<uint32_t>(Advice::kNoReuse)) {
            return -device::kErrorInvalid;
        }
        device::DeviceWords::store(file->advice, static_cast<uint64_t>(advice) + 1, site::kRelaxed);
        return 0;
    });
}

}  // namespace penstock
