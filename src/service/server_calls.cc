// Answers the control calls of kernels (gopen, gclose, ...) at their ports.
#include <cerrno>
#include <cstring>
#include <string>

#include "penstock/device/atomic.cuh"
#include "service/server.h"

namespace penstock::service {

using device::SystemWords;

bool Server::serve_calls() {
    bool any = false;
    for (uint32_t port = 0; port < limits::kPortsMax; ++port) {
        uint64_t word = SystemWords::load(shared_.state->port_requests[port], site::kServe);
        const uint64_t answered = SystemWords::load(shared_.state->port_responses[port],
                                                    site::kRelaxed);
        if (word >> 8 == answered ||
            shared_.port_taken[port].test_and_set(std::memory_order_acquire))
            continue;
        // The word that was read before the port was locked may be an older call that another
        // server has answered.
        word = SystemWords::load(shared_.state->port_requests[port], site::kServe);
        if (word >> 8 != SystemWords::load(shared_.state->port_responses[port], site::kRelaxed)) {
            activity_.store(Activity::kCall, std::memory_order_release);
            answer_call(port, static_cast<ControlCall>(word & 0xff));
            if (!shared_.files->announce(shared_.state->port_responses[port], word >> 8).ok()) {
                shared_.abort(EIO, "the answer to a call could not be announced to the device");
            }
            counters_.calls.add(1);
            activity_.store(Activity::kIdle, std::memory_order_release);
            beat();
            any = true;
        }
        shared_.port_taken[port].clear(std::memory_order_release);
    }
    return any;
}

void Server::answer_call(uint32_t index, ControlCall call) {
    ControlPort& port = shared_.state->ports[index];
    switch (call) {
        case ControlCall::kOpen: {
            const size_t length = strnlen(port.path, limits::kPathSizeMax);
            const auto opened = shared_.files->open(std::string(port.path, length), port.flags,
                                                    Opener::kKernel);
            port.result = opened.ok() ? opened.value() : -opened.status().error_number();
            return;
        }
        case ControlCall::kClose: {
            const auto closed = shared_.files->close(port.descriptor, opener_of(port.flags),
                                                     closing_of(port.flags));
            port.result = closed.ok() ? closed.value() : -closed.status().error_number();
            return;
        }
        case ControlCall::kSync:
            port.result = -shared_.files->sync(port.descriptor).error_number();
            return;
        case ControlCall::kTruncate:
            port.result = -shared_.files->truncate(port.descriptor, port.size).error_number();
            return;
        case ControlCall::kWrite:
            port.result = -write_bytes(port);
            return;
        case ControlCall::kUnlink: {
            const size_t length = strnlen(port.path, limits::kPathSizeMax);
            port.result = -shared_.files->unlink(std::string(port.path, length)).error_number();
            return;
        }
        case ControlCall::kDistrust:
            shared_.files->distrust(static_cast<uint32_t>(port.size));
            port.result = 0;
            return;
        case ControlCall::kNone:
            break;
    }
    port.result = -EINVAL;
}

}  // namespace penstock::service
