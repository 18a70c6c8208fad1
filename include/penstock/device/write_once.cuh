// Files that are written once (kOpenWriteOnce): none of their pages is read.
//
// Whole granules are written through the page cache as for any file, into pages that hold nothing
// else. If only a part of a granule is written, the cache lacks the rest, so that part goes to the
// host at once, and into no page. So a byte that is written twice may get either value, if one of
// the writes covers a part of its granule. The pages are of no use to readers: after the last close
// the file has other bytes.
#pragma once

#include "penstock/device/control_port.cuh"
#include "penstock/device/read.cuh"

namespace penstock::device {

PENSTOCK_DEVICE inline bool is_written_once(const FileState& file) {
    return (DeviceWords::load(file.writing, site::kRelaxed) & kWritesOnce) != 0;
}

// Returns the granules of which a request writes every byte. If there are none, its end equals its
// offset.
PENSTOCK_BOTH inline RangeRequest whole_granules(const RangeRequest& request) {
    constexpr uint64_t kRest = limits::kGranuleSize - 1;
    RangeRequest whole = request;
    whole.offset = (request.offset + kRest) & ~kRest;
    whole.end = request.end & ~kRest;
    if (whole.end <= whole.offset) whole.end = whole.offset;
    whole.size = whole.end - whole.offset;
    whole.buffer += whole.offset - request.offset;
    return whole;
}

// Sends bytes [begin, end) of a request to the host, less than two granules. One lane calls; waits
// for the host. Returns 0 or -errno.
PENSTOCK_DEVICE inline int64_t write_edge(FileSystemState& system, const RangeRequest& request,
                                          uint64_t begin, uint64_t end) {
    if (begin >= end) return 0;
    ControlRequest call{ControlCall::kWrite, request.descriptor};
    call.size = begin;
    call.flags = static_cast<int>(end - begin);
    call.bytes = request.buffer + (begin - request.offset);
    const int64_t error = control_call(system, call);
    if (error != 0) return error;
    FileState& file = system.files[descriptor_slot(request.descriptor)];
    raise_to(file.stored, end);
    raise_to(file.size, end);
    return 0;
}

// Writes the parts of a request that are no whole granules. One team calls. Returns 0 or -errno.
template <class Team>
PENSTOCK_NOINLINE PENSTOCK_DEVICE int64_t write_edges(const Team& team, FileSystemState& system,
                                                      const RangeRequest& request) {
    int64_t error = 0;
    if (team.lane() == 0) {
        const RangeRequest whole = whole_granules(request);
        const bool within = whole.size == 0;  // at most the end of one granule and the start of one
        const uint64_t first_end = within ? request.end : whole.offset;
        error = write_edge(system, request, request.offset, first_end);
        if (error == 0 && !within) error = write_edge(system, request, whole.end, request.end);
    }
    return team.broadcast(error, 0);
}

}  // namespace penstock::device
