// A file's bytes in this process's memory, so that the CPU backend searches where the OS page cache
// has them instead of copying them twice.
//
// A file that becomes shorter under a mapping would end the process by SIGBUS. The pages that are
// gone are replaced by zeros here, and damaged() tells it. Knows nothing of texts or GPUs. Objects
// belong to one thread; any thread may read the bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "penstock/status.h"

namespace penstock::scan {

constexpr size_t kMappingsMax = 1024;  // in a process at a time; the scan has some 300 texts open

class TextMapping {
public:
    // Maps the first `size` bytes of `descriptor`, which must be a regular file of that many. The
    // first mapping of a process sets a handler of SIGBUS, which passes on what is not of a
    // mapping; a CPU device, which sets one too, must have been opened before. ENFILE: there are
    // kMappingsMax already.
    [[nodiscard]] static Result<TextMapping> create(int descriptor, size_t size);

    TextMapping() = default;
    TextMapping(TextMapping&& other) noexcept;
    TextMapping& operator=(TextMapping&& other) noexcept;
    ~TextMapping();

    // Null for an object that create() did not make.
    [[nodiscard]] const uint8_t* bytes() const;
    [[nodiscard]] size_t size() const;
    // Whether bytes that were read are zeros because the file has them no more, or because storage
    // failed.
    [[nodiscard]] bool damaged() const;

private:
    size_t slot_ = kMappingsMax;  // index into the table that the handler looks at
};

}  // namespace penstock::scan
