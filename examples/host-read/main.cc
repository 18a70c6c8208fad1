// host-read FILE: reads FILE in pieces of 64 MiB, and says by which routes its bytes came.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <vector>

#include "penstock/file.h"

int main(int argc, char** argv) {
    if (argc != 2) {
        std::fprintf(stderr, "usage: host-read FILE\n");
        return 2;
    }
    auto file = penstock::File::open(argv[1]);
    if (!file.ok()) {
        std::fprintf(stderr, "host-read: %s: %s\n", argv[1], file.status().message().c_str());
        return 1;
    }
    const uint64_t size = file.value().size().value();
    std::vector<char> memory(std::min<uint64_t>(size, 64 << 20));
    uint64_t read = 0, cached = 0, direct = 0;
    while (read < size) {
        penstock::Report report;
        auto bytes = file.value().read(memory.data(), memory.size(), read, &report);
        if (!bytes.ok()) {
            std::fprintf(stderr, "host-read: %s: %s\n", argv[1], bytes.status().message().c_str());
            return 1;
        }
        if (bytes.value() == 0) break;  // the file has become shorter
        read += bytes.value();
        cached += report.bytes_by(penstock::Route::kCached);
        direct += report.bytes_by(penstock::Route::kDirect);
    }
    std::printf("%zu bytes: %zu cached, %zu direct\n", size_t{read}, size_t{cached},
                size_t{direct});
}
