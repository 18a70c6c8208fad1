// penstock-cache: owns a file cache. Programs use it through a mount, and by a socket (--socket).
// It serves until it is unmounted, told to stop, or gets SIGTERM, SIGINT, SIGHUP or SIGQUIT, or
// until the program at the other end of --starter-fd has ended. Then it writes back what is dirty.
//
// Exit codes: 0 all is in the files, 1 it could not start or something could not be written, 2
// wrong usage. `penstock mount` and `penstock serve` start it.
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "clients.h"
#include "json.h"
#include "leases.h"
#include "log.h"
#include "options.h"
#include "penstock/file_cache.h"
#include "report.h"
#include "tier.h"
#ifdef PENSTOCK_MOUNT
#include "mount/mount.h"
#endif

namespace penstock::cache_service {
namespace {

// Opens the devices. Returns none, with an error, if one cannot be used.
std::vector<Device> open_devices(const Options& options, std::string* error) {
    constexpr size_t kSpare = 16 << 20;  // for what else the device keeps there
    std::vector<Device> devices;
    for (const std::string& name : device_names(options)) {
        auto device = Device::open(
            name, {.runs_kernels = false, .memory_size = options.cache_size + kSpare});
        if (!device.ok()) {
            *error = name + ": " + device.status().message();
            return {};
        }
        devices.push_back(device.value());
    }
    return devices;
}

// Returns why the memory of this machine cannot hold the cache's part in host memory; empty: it
// can. The kernel promises more than it has, and then ends the process while it takes its memory.
std::string why_too_large(const Options& options, const std::vector<std::string>& names) {
    const uint64_t memory = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                            static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const auto of_host = static_cast<uint64_t>(std::ranges::count_if(
        names, [](const std::string& name) { return name.starts_with("cpu"); }));
    if (of_host == 0 || options.cache_size <= memory / of_host) return "";
    return "--cache-size: " + size_text(options.cache_size) +
           (of_host > 1 ? " of each of " + std::to_string(of_host) + " devices" : "") +
           " are more than the memory of this machine (" + size_text(memory) + ")";
}

// Returns what is to be done when the write-back of a file fails, or works again.
std::function<void(const std::string&, const Status&)> write_failed(Log* log) {
    return [log](const std::string& path, const Status& status) {
        const std::string file = path.empty() ? "a file" : path;
        log->often(file + (status.ok() ? ": is written again"
                                       : ": cannot be written, and waits: " + status.message()));
    };
}

std::optional<FileCache> make_cache(const Options& options, Log* log, Report* report,
                                    std::string* error) {
    *error = why_too_large(options, device_names(options));
    if (error->empty()) *error = why_no_tier(options);
    if (!error->empty()) return std::nullopt;
    const std::vector<Device> devices = open_devices(options, error);
    if (!error->empty()) return std::nullopt;
    std::vector<std::string> opened;  // "auto" is not among them
    for (const Device& device : devices) opened.push_back(device.name());
    *error = why_too_large(options, opened);
    if (!error->empty()) return std::nullopt;
    auto cache = FileCache::create(
        {.devices = devices,
         .size = options.cache_size,
         .chunk_size = static_cast<uint32_t>(options.chunk_size),
         .dirty_size_max = options.dirty_size_max,
         .shared = !options.socket.empty(),
         .write_on_close = false,
         .reopens_nameless = !options.mountpoint.empty(),
         .keep_free = options.keep_free,
         .tier = options.tier,
         .tier_size = options.tier_size,
         .tier_root = real_path(options.path),
         .tier_writes = options.tier_writes,
         .tier_failed =
             [log, tier = options.tier](const Status& status) {
                 log->line(tier + ": is no longer used: " + status.message());
             },
         .log_ended =
             [log, tier = options.tier](const std::string& line) { log->line(tier + ": " + line); },
         .log_kept = [report](const std::string& line) { report->note(line); },
         .write_failed = write_failed(log)});
    if (!cache.ok() && cache.status().origin() == std::string_view("log")) {
        *error = why_no_log(options, cache.status());
        return std::nullopt;
    }
    if (!cache.ok()) {
        const bool of_tier = cache.status().origin() == std::string_view("tier");
        const std::string of_device = devices.size() == 1 ? devices[0].name() : options.device;
        *error = (of_tier ? options.tier : of_device) + ": " + cache.status().message();
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
    for (const int of_terminal : {SIGHUP, SIGQUIT}) {  // unless nohup has it ignored
        struct sigaction now {};
        if (sigaction(of_terminal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&ends, of_terminal);
    }
    sigprocmask(SIG_BLOCK, &ends, nullptr);
    Leases::block_signal();
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);  // the limit is the programs', whose writes it fails
    return signalfd(-1, &ends, SFD_CLOEXEC);
}

std::string json_of(const FileCacheStatistics& now) {
    std::string text;
    for (const FileCacheStatistics::OfDevice& one : now.devices)
        text += std::string(text.empty() ? "" : ", ") + "{\"name\": " + quoted(one.name) +
                ", \"size\": " + std::to_string(one.size) +
                ", \"free_size\": " + std::to_string(one.free_size) +
                ", \"dirty_size\": " + std::to_string(one.dirty_size) +
                ", \"lost\": " + (one.lost ? "true" : "false") + "}";
    return "[" + text + "]";
}

std::string json_of(const std::vector<FileCacheStatistics::Failing>& files) {
    std::string text;
    for (const FileCacheStatistics::Failing& one : files)
        text += std::string(text.empty() ? "" : ", ") + "{\"path\": " + quoted(one.path) +
                ", \"error\": " + quoted(one.error) +
                ", \"dirty_size\": " + std::to_string(one.dirty_size) +
                ", \"dirty_age_ms\": " + std::to_string(one.dirty_age_ms) +
                ", \"retry_ms\": " + std::to_string(one.retry_ms) + "}";
    return "[" + text + "]";
}

// Returns the names of the devices, also where the cache chose them.
std::string devices_text(const Options& options, const FileCacheStatistics& now) {
    if (options.device != "auto") return options.device;
    std::string text;
    for (const FileCacheStatistics::OfDevice& one : now.devices)
        text += (text.empty() ? "" : ",") + one.name;
    return text;
}

std::string statistics(const Options& options, const FileCache& cache, const ReadFiles& files) {
    const FileCacheStatistics now = cache.statistics();
    std::string text = "{\"path\": " + quoted(options.path) +
                       ", \"mountpoint\": " + quoted(options.mountpoint) +
                       ", \"device\": " + quoted(devices_text(options, now)) +
                       ", \"pid\": " + std::to_string(getpid());
    const std::pair<const char*, uint64_t> numbers[] = {
        {"chunk_size", options.chunk_size},
        {"hits", now.hits},
        {"misses", now.misses},
        {"bytes_served", now.bytes_served},
        {"bytes_read", now.bytes_read},
        {"bytes_bypassed", now.bytes_bypassed},
        {"bytes_written", now.bytes_written},
        {"evicted", now.evicted},
        {"write_errors", now.write_errors},
        {"size", now.size},
        {"free_size", now.free_size},
        {"clean_size", now.clean_size},
        {"dirty_size", now.dirty_size},
        {"dirty_age_ms", now.dirty_age_ms},
        {"failing_count", now.failing_count},
        {"given_back_size", now.given_back_size},
        {"allocations", now.allocations},
        {"devices_lost", now.devices_lost},
        {"bytes_lost", now.bytes_lost},
        {"tier_size", now.tier_size},
        {"tier_used_size", now.tier_used_size},
        {"tier_bytes_read", now.tier_bytes_read},
        {"tier_bytes_filled", now.tier_bytes_filled},
        {"tier_chunks_skipped", now.tier_chunks_skipped},
        {"tier_bytes_logged", now.tier_bytes_logged},
        {"tier_log_size", now.tier_log_size},
        {"tier_bytes_recovered", now.tier_bytes_recovered},
    };
    for (const auto& [name, number] : numbers)
        text += std::string(", \"") + name + "\": " + std::to_string(number);
    std::string kept;
    for (const std::string& line : now.tier_kept) kept += (kept.empty() ? "" : ", ") + quoted(line);
    text += ", \"tier_kept\": [" + kept + "], \"tier_log_error\": " + quoted(now.tier_log_error);
    text += ", \"failing\": " + json_of(now.failing) + ", \"log\": " + quoted(options.log);
    text += ", \"tier\": " + quoted(options.tier) + ", \"tier_error\": " + quoted(now.tier_error);
    return text + ", \"devices\": " + json_of(now) + ", \"files\": " + files.json(20) + "}";
}

// Writes back what is dirty, and reports how much is left. `mount_failure`: why the mount has ended
// by itself; empty: it has not.
bool write_back_all(const Options& options, const FileCache& cache,
                    const std::string& mount_failure, Report* report) {
    auto written = std::async(std::launch::async, [&cache] { return cache.flush(); });
    do {
        report->writing(cache.statistics().dirty_size);
    } while (written.wait_for(std::chrono::milliseconds(100)) != std::future_status::ready);
    Status status = written.get();
    const FileCacheStatistics end = cache.statistics();
    const bool is_written = status.ok();
    if (is_written) status = cache.end_log();
    std::string failure;
    if (is_written && !status.ok())
        failure = options.path + ": all is written, but the log in " + options.tier +
                  " stays: " + status.message() + " (start again with that --tier)";
    else if (!status.ok())
        failure = options.path + ": " + std::to_string(end.dirty_size) +
                  " bytes could not be written: " + status.message();
    else if (end.bytes_lost > 0)
        failure = options.path + ": " + std::to_string(end.bytes_lost) +
                  " bytes were lost with a device, before they were written";
    if (!failure.empty() && end.tier_log_size > 0)
        failure += "; what was synced is in the log in " + options.tier +
                   " (start again with that --tier)";
    if (!mount_failure.empty())
        failure = options.mountpoint + ": the mount has failed (" + mount_failure +
                  "), and was taken away; " +
                  (failure.empty() ? "all that was written is in the files (mount it again)"
                                   : failure);
    report->end(failure);
    return failure.empty();
}

#ifdef PENSTOCK_MOUNT
// Takes the folder that a mount is to show. Returns false with an error.
bool take_folder(const Options& options, ShownFolder* folder, std::string* error) {
    return options.mountpoint.empty() || Mount::take(options.path, folder, error);
}
// Returns null with an error, or where no mount is asked for.
// `reading` are the files of preloaded programs, once there are any.
std::unique_ptr<Mount> start_mount(const Options& options, const ShownFolder& folder,
                                   const FileCache& cache, const Report& report,
                                   const std::atomic<ReadFiles*>& reading, std::string* error) {
    if (options.mountpoint.empty()) return nullptr;
    const OtherFiles others{.close =
                                [&reading](dev_t device, ino_t number) {
                                    if (ReadFiles* const files = reading)
                                        files->drop(device, number);
                                },
                            .close_all =
                                [&reading] {
                                    if (ReadFiles* const files = reading) files->drop_all();
                                }};
    return Mount::start(cache, options.path, folder, options.mountpoint,
                        {.report = report.place(),
                         .others = others,
                         .read_only = options.read_only,
                         .suid = options.suid,
                         .dev = options.dev},
                        error);
}
#else
struct ShownFolder {};
struct Mount {
    static int ended() { return -1; }
    static std::string failure() { return ""; }
    static void stop() {}
};
bool take_folder(const Options& options, ShownFolder* /*folder*/, std::string* error) {
    if (!options.mountpoint.empty())
        *error = "--mount: this build has no mount (install libfuse3-dev 3.12, build again)";
    return error->empty();
}
std::unique_ptr<Mount> start_mount(const Options& /*options*/, const ShownFolder& /*folder*/,
                                   const FileCache& /*cache*/, const Report& /*report*/,
                                   const std::atomic<ReadFiles*>& /*reading*/,
                                   std::string* /*error*/) {
    return nullptr;
}
#endif

int serve(const Options& options, const ShownFolder& folder, const FileCache& cache, int signals,
          Report* report) {
    // The command was interrupted while the cache took its memory, and told its user nothing.
    if (report->is_abandoned()) return 1;
    std::string error;
    const int stop = eventfd(0, EFD_CLOEXEC);
    struct stat below {};
    (void)stat(options.path.c_str(), &below);  // the mount may hide it
    std::unique_ptr<Clients> clients;
    std::atomic<ReadFiles*> reading{nullptr};
    const auto mount = start_mount(options, folder, cache, *report, reading, &error);
    if (error.empty() && !options.socket.empty()) {
        auto listening = Clients::listen(
            options.socket, options.path, cache,
            [&](const ReadFiles& files) { return statistics(options, cache, files); },
            [stop] { eventfd_write(stop, 1); });
        if (listening.ok()) {
            clients = std::move(listening.value());
            struct stat shown {};
            if (mount != nullptr && stat(options.mountpoint.c_str(), &shown) == 0)
                clients->files().set_mount(shown.st_dev, below.st_dev);
            reading = &clients->files();
        } else {
            error = options.socket + ": " + listening.status().message();
        }
    }
    if (!error.empty()) {
        report->refuse(error);
        if (mount == nullptr) return 1;
        mount->stop();
        (void)write_back_all(options, cache, "", report);  // programs may have written already
        return 1;
    }
    const bool known = report->begin();  // else its command was interrupted meanwhile
    pollfd ends[] = {{signals, POLLIN, 0},
                     {stop, POLLIN, 0},
                     {options.starter, POLLIN, 0},
                     {mount == nullptr ? -1 : mount->ended(), POLLIN, 0}};
    while (known && poll(ends, std::size(ends), -1) < 0) continue;  // a signal for another thread
    if (mount != nullptr) mount->stop();
    clients = nullptr;
    const std::string failure = mount == nullptr ? "" : mount->failure();
    return write_back_all(options, cache, failure, report) ? 0 : 1;
}

int run(int count, char** words) {
    Options options;
    std::string error;
    if (!read_options(count, words, &options, &error)) {
        std::fprintf(stderr, "penstock-cache: %s\n", error.c_str());
        return 2;
    }
    const int signals = watch_signals();
    Log log(options.log);
    Report report(options.ready, &log);
    // The cache puts what a log has into the files, so they must not lie below a dead mount.
    ShownFolder folder;
    std::optional<FileCache> cache;
    if (take_folder(options, &folder, &error)) cache = make_cache(options, &log, &report, &error);
    if (!cache.has_value()) {
        report.refuse(error);
        return 1;
    }
    return serve(options, folder, *cache, signals, &report);
}

}  // namespace
}  // namespace penstock::cache_service

int main(int count, char** words) { return penstock::cache_service::run(count, words); }
