// What other processes see of a file cache (abi/chunk_table.h). They read chunks that the host can
// address where they lie, and copies of the others in the host window.
#include <algorithm>

#include "file/cache_of_files.h"

namespace penstock::file {
namespace {

constexpr uint64_t kWindowSize = uint64_t{128} << 20;  // bytes, at least one slab

}  // namespace

Status CacheOfFiles::share() {
    uint32_t chunk_count = static_cast<uint32_t>(memory_.slab_count()) * kSlabChunks;
    const auto gpu = std::ranges::find_if_not(options_.devices, &Device::host_addressable);
    if (gpu != options_.devices.end()) {
        const uint64_t slab_size = uint64_t{kSlabChunks} * chunk_size();
        const auto slabs = static_cast<uint32_t>(std::max<uint64_t>(1, kWindowSize / slab_size));
        auto window = HostWindow::create(*gpu, options_.chunk_size, kSlabChunks, slabs);
        if (!window.ok()) return window.status();
        window_ = std::move(window.value());
        chunk_count = slabs * kSlabChunks;
    }
    auto shared = SharedTable::create(options_.chunk_size, chunk_count);
    if (!shared.ok()) return shared.status();
    shared_ = std::move(shared.value());
    shared_->set_error_count(error_count_);
    (window_ != nullptr ? window_->chunks() : chunks_).set_publisher(shared_.get());
    return {};
}

void CacheOfFiles::set_size(Inode& inode, uint64_t size) {
    inode.size = size;
    if (shared_ != nullptr) shared_->set_size(inode.slot, size);
}

// Returns whether other processes may read the file.
bool CacheOfFiles::tell_readers(const Inode& inode) {
    using Readable = CachedFile::Readable;
    if (shared_ == nullptr || inode.slot == SharedTable::kNoSlot) return false;
    const bool readable = inode.readable == Readable::kUnchanged ||
                          (inode.readable == Readable::kUnlessRecent && !inode.racy);
    const bool same = inode.readable == Readable::kUnchanged;
    shared_->set_file(inode.slot, readable, same, inode.below, inode.size);
    return readable;
}

bool CacheOfFiles::publish(Inode& inode, CachedFile::Readable readable) {
    const std::lock_guard lock(mutex_);
    inode.readable = readable;
    return tell_readers(inode);
}

CachedFile::Use CacheOfFiles::use_of(const Inode& inode) const {
    const std::lock_guard lock(mutex_);
    CachedFile::Use use;
    if (shared_ != nullptr) {
        const SharedTable::Hits hits = shared_->hits_of(inode.slot);
        use.hits = hits.hits;
        use.bytes = hits.bytes;
    }
    use.slot = inode.slot;
    use.cached_size = chunks_.chunks_of(inode.id) * chunk_size();
    use.dirty_size = chunks_.dirty_of(inode.id) * chunk_size();
    use.is_open_for_writing = inode.writer.descriptor >= 0;
    return use;
}

SharedFileCache CacheOfFiles::shared() const {
    if (shared_ == nullptr) return {};
    return {shared_->table_descriptor(), window_ != nullptr ? window_->arena() : memory_.arena(),
            shared_->marks_descriptor()};
}

bool CacheOfFiles::filled(const Inode& inode, ChunkId id, bool good) {
    const bool usable = chunks_.filled(id, good);
    if (usable && shared_ != nullptr && window_ == nullptr)
        shared_->publish(inode.slot, chunks_.chunk(id).number, id);
    return usable;
}

void CacheOfFiles::drop_chunks(const Inode& inode, uint64_t first, uint64_t last) {
    if (shared_ != nullptr) {
        withdraw_all(inode, first, last);
        shared_->forget_end(inode.slot);
    }
    chunks_.drop(inode.id, first, last);
    drop_copies(inode, first, last);
}

void CacheOfFiles::drop_copies(const Inode& inode, uint64_t first, uint64_t last) {
    if (window_ != nullptr) {
        // A chunk has one copy that programs may write: else the bytes of one were lost.
        withdraw_all(inode, first, last);
        window_->drop(inode.id, first, last);
    }
    drop_in_tier(inode, first, last);
}

void CacheOfFiles::drop_in_tier(const Inode& inode, uint64_t first, uint64_t last) {
    if (tier_ != nullptr) tier_->drop(inode.id, first, last);
}

}  // namespace penstock::file
