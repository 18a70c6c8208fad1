#include "service/control_calls.h"

#include <cerrno>
#include <cstring>
#include <string>

#include "penstock/device/atomic.cuh"

namespace penstock::service {
namespace {

using device::SystemWords;

std::string path_in(const ControlPort& port) {
    return {port.path, strnlen(port.path, limits::kPathSizeMax)};
}

int64_t result_of(const Status& status) { return -status.error_number(); }
int64_t result_of(const Result<int64_t>& result) {
    return result.ok() ? result.value() : -result.status().error_number();
}

}  // namespace

// Returns the request word of a call that has no answer, or 0.
uint64_t ControlCalls::next_call(uint32_t port) const {
    const uint64_t word = SystemWords::load(state_.port_requests[port], site::kServe);
    const uint64_t answered = SystemWords::load(state_.port_responses[port], site::kRelaxed);
    return word >> 8 == answered ? 0 : word;
}

bool ControlCalls::serve(Progress& progress, WriteBacks& writes) {
    bool any = false;
    for (uint32_t port = 0; port < limits::kPortsMax; ++port) {
        if (next_call(port) == 0 || taken_[port].test_and_set(std::memory_order_acquire)) continue;
        // The word that was read before the port was locked may be an older call that another
        // worker has answered.
        if (const uint64_t word = next_call(port); word != 0) {
            const Progress::During during(progress, Activity::kCall);
            ControlPort& call = state_.ports[port];
            call.result = answer(call, static_cast<ControlCall>(word & 0xff), writes);
            if (!files_.announce(state_.port_responses[port], word >> 8).ok())
                abort_(EIO, "the answer to a call could not be announced to the device");
            progress.counters.calls.add(1);
            progress.beat();
            any = true;
        }
        taken_[port].clear(std::memory_order_release);
    }
    return any;
}

int64_t ControlCalls::answer(ControlPort& port, ControlCall call, WriteBacks& writes) {
    switch (call) {
        case ControlCall::kOpen:
            return result_of(files_.open(path_in(port), port.flags, Opener::kKernel));
        case ControlCall::kClose:
            return result_of(
                files_.close(port.descriptor, opener_of(port.flags), closing_of(port.flags)));
        case ControlCall::kSync:
            return result_of(files_.sync(port.descriptor));
        case ControlCall::kTruncate:
            return result_of(files_.truncate(port.descriptor, port.size));
        case ControlCall::kWrite:
            return -writes.write_bytes(port);
        case ControlCall::kUnlink:
            return result_of(files_.unlink(path_in(port)));
        case ControlCall::kInvalidate:
            files_.invalidate(static_cast<uint32_t>(port.size));
            return 0;
        case ControlCall::kNone:
            break;
    }
    return -EINVAL;
}

}  // namespace penstock::service
