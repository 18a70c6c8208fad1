// penstock-cache: owns a file cache, and serves it until it is unmounted or gets SIGTERM or SIGINT.
// Then it writes back what is dirty.
//
// Exit codes: 0 all is in the files, 1 it could not start or something could not be written, 2
// wrong usage. `penstock mount` starts it.
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "options.h"
#include "penstock/file_cache.h"
#include "report.h"
#ifdef PENSTOCK_MOUNT
#include "mount/mount.h"
#endif

namespace penstock::cache_service {
namespace {

std::optional<FileCache> make_cache(const Options& options, std::string* error) {
    const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                            static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    if (options.device.rfind("cpu", 0) == 0 && options.cache_size > memory) {
        *error = options.device + ": a cache of " + std::to_string(options.cache_size) +
                 " bytes is more than the memory of this machine";
        return std::nullopt;
    }
    constexpr size_t kSpare = 16 << 20;  // for what else the device keeps there
    auto device = Device::open(options.device,
                               {.runs_kernels = false, .memory_size = options.cache_size + kSpare});
    if (!device.ok()) {
        *error = options.device + ": " + device.status().message();
        return std::nullopt;
    }
    auto cache = FileCache::create({.devices = {device.value()},
                                    .size = options.cache_size,
                                    .chunk_size = static_cast<uint32_t>(options.chunk_size),
                                    .dirty_size_max = options.dirty_size_max});
    if (!cache.ok()) {
        *error = device.value().name() + ": " + cache.status().message();
        return std::nullopt;
    }
    return cache.value();
}

// Blocks the signals that end the process. Returns a descriptor that tells of them.
int watch_signals() {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // the limit is the programs', whose writes it fails
    return signalfd(-1, &ends, SFD_CLOEXEC);
}

#ifdef PENSTOCK_MOUNT
int serve(const Options& options, const FileCache& cache, int signals, Report* report) {
    std::string error;
    auto mount = Mount::start(cache, options.path, options.mountpoint, {.report = report->place()},
                              &error);
    if (mount == nullptr) {
        report->refuse(error);
        return 1;
    }
    report->begin();
    pollfd ends[] = {{signals, POLLIN, 0}, {mount->ended(), POLLIN, 0}};
    while (poll(ends, 2, -1) < 0) continue;  // a signal for another thread
    mount->stop();
    report->end("");
    return 0;
}
#else
int serve(const Options& /*options*/, const FileCache& /*cache*/, int /*signals*/, Report* report) {
    report->refuse("--mount: this build has no mount (install libfuse3-dev 3.12, build again)");
    return 1;
}
#endif

int run(int count, char** words) {
    Options options;
    std::string error;
    if (!read_options(count, words, &options, &error)) {
        std::fprintf(stderr, "penstock-cache: %s\n", error.c_str());
        return 2;
    }
    const int signals = watch_signals();
    Report report(options.ready);
    const auto cache = make_cache(options, &error);
    if (!cache.has_value()) {
        report.refuse(error);
        return 1;
    }
    return serve(options, *cache, signals, &report);
}

}  // namespace
}  // namespace penstock::cache_service

int main(int count, char** words) { return penstock::cache_service::run(count, words); }
