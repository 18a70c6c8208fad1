#include "testing/reference_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "testing/bytes.h"

namespace penstock::testing {

void ReferenceFile::resize(uint64_t size) {
    if (size < size_) {
        chunks_.erase(chunks_.lower_bound((size + kChunkSize - 1) / kChunkSize), chunks_.end());
        const auto last = chunks_.find(size / kChunkSize);
        if (last != chunks_.end()) {
            std::fill(last->second.begin() + static_cast<ptrdiff_t>(size % kChunkSize),
                      last->second.end(), std::byte{0});
        }
    }
    size_ = size;
}

void ReferenceFile::write(uint64_t offset, std::span<const std::byte> bytes) {
    size_ = std::max(size_, offset + bytes.size());
    while (!bytes.empty()) {
        std::vector<std::byte>& chunk = chunks_[offset / kChunkSize];
        chunk.resize(kChunkSize);
        const uint64_t within = offset % kChunkSize;
        const size_t piece = std::min<uint64_t>(bytes.size(), kChunkSize - within);
        std::memcpy(chunk.data() + within, bytes.data(), piece);
        bytes = bytes.subspan(piece);
        offset += piece;
    }
}

uint64_t ReferenceFile::count(uint64_t offset, uint64_t size) const {
    return offset >= size_ ? 0 : std::min(size, size_ - offset);
}

size_t ReferenceFile::mismatch(uint64_t offset, std::span<const std::byte> bytes) const {
    for (size_t done = 0; done < bytes.size();) {
        const uint64_t within = (offset + done) % kChunkSize;
        const size_t piece = std::min<uint64_t>(bytes.size() - done, kChunkSize - within);
        const auto chunk = chunks_.find((offset + done) / kChunkSize);
        static const std::vector<std::byte> zeros(kChunkSize);
        const std::vector<std::byte>& wanted = chunk == chunks_.end() ? zeros : chunk->second;
        const size_t good = first_difference(&bytes[done], &wanted[within], piece);
        if (good < piece) return done + good;
        done += piece;
    }
    return bytes.size();
}

std::string ReferenceFiles::path(const std::string& name) const {
    return ram_ != nullptr ? name : folder_ + "/" + name;
}

const ReferenceFile& ReferenceFiles::file(const std::string& name) const { return files_.at(name); }

bool ReferenceFiles::create(const std::string& name) {
    files_[name] = ReferenceFile();
    if (ram_ != nullptr) return ram_->create(name, 0).ok();
    const int descriptor = open(path(name).c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644);
    return descriptor >= 0 && close(descriptor) == 0;
}

bool ReferenceFiles::resize(const std::string& name, uint64_t size) {
    files_.at(name).resize(size);
    if (ram_ != nullptr) return ram_->resize(name, size).ok();
    return truncate(path(name).c_str(), static_cast<off_t>(size)) == 0;
}

bool ReferenceFiles::write(const std::string& name, uint64_t offset,
                           std::span<const std::byte> bytes) {
    files_.at(name).write(offset, bytes);
    if (ram_ != nullptr) return ram_->write(name, offset, bytes).ok();
    const int descriptor = open(path(name).c_str(), O_WRONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    const ssize_t count = pwrite(descriptor, bytes.data(), bytes.size(),
                                 static_cast<off_t>(offset));
    close(descriptor);
    return count == static_cast<ssize_t>(bytes.size());
}

bool ReferenceFiles::remove(const std::string& name) {
    files_.erase(name);
    if (ram_ != nullptr) return ram_->unlink(name).ok();
    return unlink(path(name).c_str()) == 0;
}

bool ReferenceFiles::rename(const std::string& from, const std::string& to) {
    auto moved = files_.extract(from);
    files_[to] = std::move(moved.mapped());
    if (ram_ != nullptr) return false;  // arrays in memory keep their names
    return std::rename(path(from).c_str(), path(to).c_str()) == 0;
}

}  // namespace penstock::testing
