// Opens the log of writes of a file cache (cache_log.cc), when it starts. What the log of an
// earlier process has goes to the files first, if storage still knows that log (log_marker.h).
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "file/cache_of_files.h"
#include "file/log_marker.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

namespace system = storage::system;

int open_folder(const std::string& path) {
    return system::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

bool is_log(const std::string& folder, const std::string& path) {
    struct stat state {};
    return !folder.empty() && std::ranges::any_of(log_names(folder, path), [&](const auto& name) {
        return system::stat(name.c_str(), &state) == 0;
    });
}

// Returns whether to start beside a log that this start does not have. Errors: ESTALE, the process
// of the log was killed; EBUSY, it uses the log.
Status may_start_beside(const LogMarker& marker, bool tier_writes) {
    if (!is_in_use(marker))
        return {ESTALE, "log", "what was synced is in another log, and not in its files yet"};
    return tier_writes ? Status{EBUSY, "log", "its files have another log"} : Status{};
}

// The same for logs of the folders above a path: these are for its files too.
Status may_start_below(const std::string& path) {
    for (size_t slash = path.rfind('/'); slash != std::string::npos && path.size() > 1;
         slash = slash == 0 ? std::string::npos : path.rfind('/', slash - 1)) {
        const std::string above = path.substr(0, std::max<size_t>(slash, 1));
        const system::ScopedDescriptor root(open_folder(above));
        if (root.get() < 0) continue;
        const auto marker = read_marker(root.get());
        if (!marker.ok() || !is_of(marker.value(), root.get(), above)) continue;
        // Any user may make such a file in /tmp.
        if (marker.value().owner != 0 && marker.value().owner != geteuid()) continue;
        if (Status status = may_start_beside(marker.value(), false); !status.ok()) return status;
    }
    return {};
}

}  // namespace

// Takes over what an earlier process has left: its marker, and the log that this names. `log` gets
// that log if it goes on, without records.
Status CacheOfFiles::take_over_log(std::unique_ptr<WriteLog>* log) {
    const int root = log_root_->get();
    const auto found = read_marker(root);
    if (!found.ok() && found.status().error_number() != ENOENT) return found.status();
    const LogMarker& marker = found.value();
    const bool is_marked = found.ok() && is_of(marker, root, options_.tier_root);
    // The folder may have been moved since.
    const std::string& path = is_marked && is_log(options_.tier, marker.path) ? marker.path
                                                                              : options_.tier_root;
    if (!is_log(options_.tier, path))
        return is_marked ? may_start_beside(marker, options_.tier_writes) : Status{};
    auto opened = WriteLog::open(options_.tier, path, tier_->size() / 8);
    if (!opened.ok()) return opened.status();
    // A process that is killed while it starts has given the log its generation, and not the
    // marker.
    const bool is_named = is_marked && (marker.folder == options_.tier ||
                                        opened.value()->generation(0) == marker.generation ||
                                        opened.value()->generation(1) == marker.generation);
    if (is_marked && !is_named)
        if (Status status = may_start_beside(marker, options_.tier_writes); !status.ok())
            return status;
    auto told = recover_log(*opened.value(), is_named ? marker.generation : 0, options_.tier,
                            options_.tier_root, options_.log_kept);
    if (!told.ok()) return told.status();
    counts_.tier_bytes_recovered = told.value().bytes;
    counts_.tier_kept = told.value().kept;
    if (options_.tier_writes && path == options_.tier_root) {
        *log = std::move(opened.value());
        return {};
    }
    (void)opened.value()->remove();
    return is_named ? remove_marker(root) : Status{};
}

Status CacheOfFiles::open_log() {
    if (options_.tier_root.empty())
        return options_.tier_writes ? Status{EINVAL, "tier", "no folder is named for its log"}
                                    : Status{};
    if (options_.tier_writes && !std::ranges::all_of(options_.devices, &Device::host_addressable))
        return {EINVAL, "tier", "writes go there only from a cache in host memory"};
    log_root_ = std::make_unique<system::ScopedDescriptor>(open_folder(options_.tier_root));
    if (log_root_->get() < 0)
        return options_.tier.empty()
                   ? Status{}
                   : Status{errno, "log", "the folder that is cached cannot be read"};
    std::unique_ptr<WriteLog> log;
    Status status = may_start_below(options_.tier_root);
    if (status.ok()) status = take_over_log(&log);
    if (!status.ok() || !options_.tier_writes) return status;
    if (log == nullptr) {
        auto opened = WriteLog::open(options_.tier, options_.tier_root, tier_->size() / 8);
        if (!opened.ok()) return opened.status();
        log = std::move(opened.value());
    }
    const auto marker = new_marker(log_root_->get(), options_.tier_root, options_.tier);
    status = marker.status();
    if (status.ok()) status = log->reserve(marker.value().generation);
    auto ahead_ns = status.ok() ? write_marker(log_root_->get(), marker.value())
                                : Result<int64_t>(status);
    if (status = ahead_ns.status(); !status.ok()) {
        (void)log->remove();  // it has no records
        (void)remove_marker(log_root_->get());
        return status;
    }
    log->set_clock(ahead_ns.value());
    log_ = std::move(log);
    logged_.resize(memory_.slab_count() * kSlabChunks);
    return {};
}

}  // namespace penstock::file
