// Joins streams of a trace: ranks that one program describes, and ranks and threads whose accesses
// to one file are predicted better together, because they take its pieces in turn. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "access/program.h"
#include "file/signature_evidence.h"
#include "penstock/status.h"

namespace penstock::file {

// What is known of one stream.
struct FoundStream {
    access::Program program;
    uint64_t thread = 0;          // of the rank
    uint64_t shared_by = 1;       // streams whose accesses are taken together
    Status invalid;               // why the program may not be used
    std::vector<size_t> members;  // indices of recorded streams
    SignatureEvidence evidence;
    bool all = true;
};

struct RecordedStream {
    std::vector<access::Access> accesses;
    std::vector<uint64_t> times_ns;
};

// Takes the accesses of several ranks or threads to a file together, in order of time, where that
// predicts notably more bytes. Appends what it merges to `*recorded`.
[[nodiscard]] std::vector<FoundStream> join_threads(std::vector<FoundStream> all,
                                                    std::vector<RecordedStream>* recorded);

// Joins streams that differ only in the rank and whose programs have the same nodes.
[[nodiscard]] std::vector<FoundStream> join_ranks(std::vector<FoundStream> all);

}  // namespace penstock::file
