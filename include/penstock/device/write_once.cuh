// Files that are written once (kOpenWriteOnce): no page of them is read.
//
// Whole granules are written through the page cache as those of any file, into pages that have
// nothing else. Of a granule of which a part is written, the cache has no rest: that part goes to
// the host at once, and into no page. So a byte that is written twice may end as either, if one of
// its writes was a part of its granule. The pages are of use to no reader: behind the last close
// the file has others.
#pragma once

#include "penstock/device/control_port.cuh"
#include "penstock/device/read.cuh"

namespace penstock::device {

PENSTOCK_DEVICE inline bool is_written_once(const FileState& file) {
    return (DeviceWords::load(file.writing, site::kRelaxed) & kWritesOnce) != 0;
}

// The granules of which a request writes every byte; none: its end is its offset.
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

// Hands bytes [begin, end) of a request to the host, less than two granules. One lane; waits for
// the host. 0 or -errno.
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

// The parts of a request that are no whole granules. By one team; 0 or -errno.
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
