// Moves bytes between device memory and descriptors that no File stands for: pipes, sockets, files
// that are appended to, files that may not be opened again. They pass through host memory.
#pragma once

#include <sys/types.h>

#include "penstock/device.h"

namespace penstock::preload {

// As penstock_preload_move(), by the kernel's own calls on the descriptor. `memory` is memory of
// `device`. A transfer moves pieces of 1 MiB, and ends at the first that is cut short.
ssize_t bounce(int fd, std::byte* memory, size_t size, off_t offset, bool write,
               const Device& device);

}  // namespace penstock::preload
