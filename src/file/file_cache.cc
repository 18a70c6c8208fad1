#include "penstock/file_cache.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "file/cache_of_files.h"
#include "file/log_marker.h"
#include "storage/system_calls.h"

namespace penstock {

Result<FileCache> FileCache::create(const FileCacheOptions& options) {
    auto made = file::CacheOfFiles::create(options);
    if (!made.ok()) return made.status();
    FileCache cache;
    cache.cache_ = std::move(made.value());
    return cache;
}

Result<UnfinishedLog> FileCache::unfinished_log(const std::string& root) {
    Status none{ENOENT, "log", "there is none"};
    for (std::string path = root; !path.empty();) {
        const storage::system::ScopedDescriptor folder(
            storage::system::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        const auto marker = file::read_marker(folder.get());
        if (marker.ok() && file::is_of(marker.value(), folder.get(), path))
            return UnfinishedLog{path, marker.value().host, marker.value().folder};
        if (!marker.ok() && marker.status().error_number() == EUCLEAN) none = marker.status();
        const size_t slash = path == "/" ? std::string::npos : path.rfind('/');
        path.resize(slash == std::string::npos ? 0 : std::max<size_t>(slash, 1));
    }
    return none;
}

Result<CachedFile> FileCache::adopt(int descriptor) const {
    const int flags = storage::system::fcntl(descriptor, F_GETFL, 0);
    if (flags < 0) return Status{errno, "file cache", "the descriptor is not open"};
    auto adopted = file::FileBelow::adopt(descriptor, cache_->devices());
    if (!adopted.ok()) {
        storage::system::close(descriptor);
        return adopted.status();
    }
    const int access = flags & O_ACCMODE;
    const bool reads = access != O_WRONLY, writes = access != O_RDONLY;
    const file::FileBelow& below = adopted.value();
    auto inode = cache_->open(below, reads, writes);
    if (!inode.ok()) return inode.status();
    return CachedFile(std::shared_ptr<file::FileInCache>(
        new file::FileInCache{cache_, below, reads, writes, inode.value()}));
}

Result<CachedFile> FileCache::opened(uint64_t device, uint64_t inode) const {
    file::FileBelow below;
    file::Inode* found = cache_->open_again(device, inode, &below);
    if (found == nullptr) return Status{ENOENT, "file cache", "nobody has the file open"};
    return CachedFile(std::shared_ptr<file::FileInCache>(
        new file::FileInCache{cache_, std::move(below), true, false, found}));
}

Status FileCache::stat(int descriptor, struct stat* out) const {
    return cache_->stat(descriptor, out);
}
Status FileCache::change(int descriptor, bool sets_mtime,
                         const std::function<int()>& change) const {
    return cache_->change(descriptor, sets_mtime, change);
}
void FileCache::forget_nameless(int descriptor) const { cache_->forget_nameless(descriptor); }
Status FileCache::flush() const { return cache_->flush(); }
void FileCache::close_unused() const { cache_->close_unused(); }
Status FileCache::end_log() const { return cache_->end_log(); }

Result<uint64_t> FileCache::give_back(uint64_t size, std::chrono::milliseconds limit) const {
    return cache_->give_back(size, limit);
}
Result<uint64_t> FileCache::grow(uint64_t size) const { return cache_->grow(size); }
FileCacheStatistics FileCache::statistics() const { return cache_->statistics(); }
Status FileCache::take_error(uint64_t device, uint64_t inode, uint64_t* told) const {
    return cache_->take_error(device, inode, told);
}
void FileCache::forget_writer(uint32_t writer) const { cache_->forget_writer(writer); }
SharedFileCache FileCache::shared() const { return cache_->shared(); }

Result<uint64_t> CachedFile::read(void* to, uint64_t size, uint64_t offset) const {
    if (!file_->reads) return Status{EBADF, "read", "the file is not open for reading"};
    return file_->cache->read(*file_->inode, file_->below, static_cast<std::byte*>(to), size,
                              offset);
}
Result<uint64_t> CachedFile::write(const void* from, uint64_t size, uint64_t offset) const {
    if (!file_->writes) return Status{EBADF, "write", "the file is not open for writing"};
    return file_->cache->write(*file_->inode, file_->below, static_cast<const std::byte*>(from),
                               size, offset);
}
Status CachedFile::sync(bool data_only) const {
    return file_->tell([&](uint64_t* told) { return sync(data_only, told); });
}
Status CachedFile::sync(bool data_only, uint64_t* told) const {
    return file_->cache->sync(*file_->inode, true, data_only, told);
}
Status CachedFile::flush() const {
    return file_->tell([&](uint64_t* told) { return flush(told); });
}
Status CachedFile::flush(uint64_t* told) const {
    return file_->cache->sync(*file_->inode, false, false, told);
}
Status CachedFile::truncate(uint64_t size) const {
    if (!file_->writes) return {EBADF, "truncate", "the file is not open for writing"};
    return file_->cache->truncate(*file_->inode, file_->below.file, size);
}
Status CachedFile::allocate(int mode, uint64_t offset, uint64_t size) const {
    if (!file_->writes) return {EBADF, "fallocate", "the file is not open for writing"};
    return file_->cache->allocate(*file_->inode, file_->below, mode, offset, size);
}
Status CachedFile::take_error() const {
    return file_->tell(
        [&](uint64_t* told) { return file_->cache->take_error(*file_->inode, told); });
}
Status CachedFile::finish() const {
    return file_->tell([&](uint64_t* told) { return finish(told); });
}
Status CachedFile::finish(uint64_t* told) const {
    return file_->cache->finish(*file_->inode, told);
}
uint64_t CachedFile::version() const { return file_->cache->version_of(*file_->inode); }
uint64_t CachedFile::size() const { return file_->cache->size_of(*file_->inode); }
Status CachedFile::revalidate() const {
    return file_->cache->revalidate(*file_->inode, file_->below);
}
Status CachedFile::refresh() const { return file_->cache->refresh(*file_->inode, file_->below); }
void CachedFile::drop(uint64_t offset, uint64_t size) const {
    file_->cache->drop(*file_->inode, offset, size);
}
Result<uint64_t> CachedFile::fetch(uint64_t offset, uint64_t size) const {
    if (!file_->reads) return Status{EBADF, "read", "the file is not open for reading"};
    return file_->cache->fetch(*file_->inode, size, offset);
}
void CachedFile::observe(uint64_t offset, uint64_t size) const {
    file_->cache->observe(*file_->inode, size, offset);
}
bool CachedFile::publish(Readable readable) const {
    return file_->cache->publish(*file_->inode, readable);
}
Result<uint64_t> CachedFile::grant(uint64_t offset, uint64_t size) const {
    if (!file_->reads || !file_->writes)
        return Status{EBADF, "write", "the file is not open for reading and writing"};
    return file_->cache->grant(*file_->inode, size, offset);
}
void CachedFile::end_grants() const { file_->cache->end_grants(*file_->inode); }
CachedFile::Use CachedFile::use() const { return file_->cache->use_of(*file_->inode); }

}  // namespace penstock
