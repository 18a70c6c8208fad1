#include "file/fast_tier.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "base/check.h"
#include "storage/system_calls.h"

namespace penstock::file {
namespace {

namespace system = storage::system;
using chunk_cache::kNone;
using chunk_cache::State;

constexpr uint64_t kDefaultSize = uint64_t{16} << 30;
constexpr uint64_t kChunksMax = uint64_t{1} << 31;

// Opens a file without a name. Returns -1 with the errno of open(2).
int open_unnamed(const std::string& folder) {
    const int made = system::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (made >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return made;
    // Some file systems know no files without a name.
    std::string name = folder + "/penstock-tier-XXXXXX";
    const int named = system::make_unique_file(&name);
    if (named >= 0) (void)system::unlink(name.c_str());
    return named;
}

// The OS page cache would hold what the memory of the cache holds too, so it is bypassed.
FileOptions options_of_tier() {
    FileOptions options;
    options.reading.cache = options.writing.cache = CachePolicy::kBypass;
    options.route_of_environment = options.strict_of_environment = false;
    options.read_ahead = false;
    return options;
}

}  // namespace

FastTier::FastTier(uint64_t size, uint32_t chunk_size, FileBelow file)
    : size_(size),
      chunk_size_(chunk_size),
      file_(std::move(file)),
      chunks_({.chunk_size = chunk_size, .slab_chunks = static_cast<uint32_t>(size / chunk_size)}) {
    chunks_.add_slab(0);
}

Result<std::unique_ptr<FastTier>> FastTier::create(const std::string& folder, uint64_t size,
                                                   uint32_t chunk_size,
                                                   const std::vector<Device>& devices) {
    system::ScopedDescriptor made(open_unnamed(folder));
    if (made.get() < 0) return Status{errno, "tier", "its folder takes no new file"};
    struct statfs space {};
    if (system::fstatfs(made.get(), &space) != 0)
        return Status{errno, "tier", "its file system tells no free space"};
    const uint64_t free = static_cast<uint64_t>(space.f_bavail) *
                          static_cast<uint64_t>(space.f_bsize);
    if (size == 0) size = std::min(kDefaultSize, free / 2);
    size -= size % chunk_size;
    if (size < kChunksMin * chunk_size || size > kChunksMax * chunk_size)
        return Status{EINVAL, "tier", "its size must be at least 1024 chunks"};
    if (size > free) return Status{ENOSPC, "tier", "its folder has not so much free space"};
    // All of it now, so that no later write finds the disk full.
    if (system::fallocate(made.get(), 0, 0, static_cast<off_t>(size)) != 0)
        return Status{errno, "tier",
                      errno == EOPNOTSUPP ? "its file system cannot reserve space"
                                          : "its space cannot be reserved"};
    auto file = FileBelow::adopt(made.get(), devices, options_of_tier());
    if (!file.ok()) return file.status();
    (void)made.release();
    return std::unique_ptr<FastTier>(new FastTier(size, chunk_size, std::move(file.value())));
}

void FastTier::add_file(FileId file) {
    // Both caches give and take back numbers in the same order.
    const auto added = chunks_.add_file();
    PENSTOCK_CHECK(added.ok() && added.value() == file, "a file has one number");
}

void FastTier::remove_file(FileId file) {
    chunks_.drop(file, 0, ~0ull);
    PENSTOCK_CHECK(chunks_.remove_file(file).ok(), "a file without chunks can be removed");
}

bool FastTier::holds(FileId file, uint64_t number) const {
    if (!error_.ok()) return false;
    const ChunkId id = chunks_.at(file, number);
    return id != kNone && chunks_.chunk(id).state == State::kClean;
}

FastTier::ChunkId FastTier::pin(FileId file, uint64_t number) {
    const ChunkId id = chunks_.find(file, number);
    chunks_.pin(id);
    return id;
}

bool FastTier::offer(FileId file, uint64_t number, ChunkId from) {
    if (!error_.ok() || queue_.size() >= kQueueMax || chunks_.at(file, number) != kNone)
        return false;
    const ChunkId to = chunks_.take(file, number);
    if (to == kNone) return false;
    queue_.push_back({from, to});
    return true;
}

std::span<FastTier::Copy> FastTier::next(std::span<Copy> room, std::vector<ChunkId>* unwanted) {
    size_t count = 0;
    while (count < room.size() && !queue_.empty()) {
        const Copy copy = queue_.front();
        queue_.pop_front();
        if (error_.ok() && !chunks_.chunk(copy.to).stale) {
            room[count++] = copy;
        } else {
            (void)copied(copy, false);
            unwanted->push_back(copy.from);
        }
    }
    return room.first(count);
}

bool FastTier::copied(const Copy& copy, bool good) {
    const bool usable = chunks_.filled(copy.to, good);
    chunks_.unpin(copy.to);
    return usable && good;
}

uint64_t FastTier::used_size() const {
    return error_.ok() ? chunks_.statistics().clean * chunk_size_ : 0;
}

}  // namespace penstock::file
