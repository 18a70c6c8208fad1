// Control calls, which only the host can carry out (gopen, gclose, ...). One lane writes the call
// into a port and waits.
//
// A port belongs to the team that locked it until the host has answered. After an abort it stays
// locked, because the host may still be writing to it.
#pragma once

#include "penstock/device/atomic.cuh"
#include "penstock/device/errors.cuh"
#include "penstock/device/wait.cuh"

namespace penstock::device {

struct ControlRequest {
    ControlCall call = ControlCall::kNone;
    Descriptor descriptor = 0;
    const char* path = nullptr;  // device-visible, NUL-terminated
    int flags = 0;
    uint64_t size = 0;
    const std::byte* bytes = nullptr;  // device-visible: `flags` bytes, at most kPathSizeMax
};

// Copies the path into the port. Returns false if it is longer than kPathSizeMax with its NUL.
PENSTOCK_DEVICE inline bool write_path(ControlPort& port, const char* path) {
    for (uint32_t i = 0; i < limits::kPathSizeMax; ++i) {
        port.path[i] = path[i];
        if (path[i] == '\0') return true;
    }
    return false;
}

// Makes a control call and returns the host's answer. One lane calls; it waits. The answer is
// -errno, or for kOpen the descriptor (-EAGAIN: dirty pages of the file are being dropped; ask
// again), for kClose 0, kWriteBackFirst or kForgetFirst, else 0.
PENSTOCK_DEVICE inline int64_t control_call(FileSystemState& system,
                                            const ControlRequest& request) {
    Wait wait(system);
    uint64_t index = 0;
    for (;;) {
        index = DeviceWords::fetch_add(system.port_hand, 1, site::kRelaxed) % limits::kPortsMax;
        uint64_t unlocked = 0;
        if (DeviceWords::compare_exchange(system.port_locks[index], unlocked, 1, site::kLockPort))
            break;
        if (const int error = wait.step(&system.port_locks[index], 1); error != 0) return error;
    }
    ControlPort& port = system.ports[index];
    port.descriptor = request.descriptor;
    port.flags = request.flags;
    port.size = request.size;
    if (request.path != nullptr && !write_path(port, request.path)) {
        DeviceWords::store(system.port_locks[index], 0, site::kUnlockPort);
        return -kErrorNameTooLong;
    }
    for (int i = 0; request.bytes != nullptr && i < request.flags; ++i)
        port.path[i] = static_cast<char>(request.bytes[i]);
    const uint64_t last = SystemWords::load(system.port_responses[index], site::kRelaxed);
    const uint64_t word = ((last + 1) << 8) | static_cast<uint64_t>(request.call);
    SystemWords::store(system.port_requests[index], word, site::kCall);
    ring(system.rings[0]);
    for (;;) {
        const uint64_t answered = SystemWords::load(system.port_responses[index], site::kResponse);
        if (answered == last + 1) break;
        if (const int error = wait.step(&system.port_responses[index], answered); error != 0)
            return error;
    }
    const int64_t result = port.result;
    DeviceWords::store(system.port_locks[index], 0, site::kUnlockPort);
    return result;
}

}  // namespace penstock::device
