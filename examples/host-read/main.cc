// host-read FILE: reads FILE into memory, and says by which route its bytes came.
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
    std::vector<char> memory(file.value().size().value());
    penstock::Report report;
    auto bytes = file.value().read(memory.data(), memory.size(), 0, &report);
    if (!bytes.ok()) {
        std::fprintf(stderr, "host-read: %s: %s\n", argv[1], bytes.status().message().c_str());
        return 1;
    }
    std::printf("%zu bytes: %zu cached, %zu direct\n", size_t{bytes.value()},
                size_t{report.bytes_by(penstock::Route::kCached)},
                size_t{report.bytes_by(penstock::Route::kDirect)});
}
