// Page-aligned memory on huge pages where the kernel gives them, for both sides of a benchmark:
// direct I/O into ordinary pages runs at less than half the speed, and a copy into misaligned
// memory too.
#pragma once

#include <cstdint>

namespace penstock::bench {

class HugeBuffer {
public:
    // `size` is rounded up to 2 MiB. Every page is written once, so that no run pays for that.
    explicit HugeBuffer(uint64_t size);
    ~HugeBuffer();
    HugeBuffer(const HugeBuffer&) = delete;
    HugeBuffer& operator=(const HugeBuffer&) = delete;

    [[nodiscard]] unsigned char* data() const { return data_; }
    [[nodiscard]] uint64_t size() const { return size_; }
    // Share of it that lies on huge pages now, as /proc/self/smaps says of the mapping it is part
    // of; 0 where that cannot be told.
    [[nodiscard]] double huge_share() const;

private:
    unsigned char* data_;
    uint64_t size_;
};

}  // namespace penstock::bench
