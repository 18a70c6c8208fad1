// Shared by tests of storage: a scratch folder, files with known bytes, and one operation from
// start to end.
//
// Only *_test.cc files include it.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "storage/storage.h"
#include "testing/bytes.h"

namespace penstock::storage {

using testing::Bytes;
using testing::random_bytes;

// A folder that is removed with its content.
class ScratchFolder {
public:
    ScratchFolder() : path_(::testing::TempDir() + "/penstock-storage-XXXXXX") {
        if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("no scratch folder");
        chmod(path_.c_str(), 0755);
    }
    ~ScratchFolder() { std::filesystem::remove_all(path_); }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;

    [[nodiscard]] std::string path(const std::string& name) const { return path_ + "/" + name; }

    // Creates the file if there is none. Overwrites from `offset` on.
    void write(const std::string& name, uint64_t offset, const Bytes& bytes) const {
        const int descriptor = ::open(path(name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        ASSERT_GE(descriptor, 0);
        const ssize_t written = pwrite(descriptor, bytes.data(), bytes.size(),
                                       static_cast<off_t>(offset));
        EXPECT_EQ(written, static_cast<ssize_t>(bytes.size()));
        close(descriptor);
    }

    void resize(const std::string& name, uint64_t size) const {
        write(name, 0, {});
        ASSERT_EQ(truncate(path(name).c_str(), static_cast<off_t>(size)), 0);
    }

private:
    std::string path_;
};

// Submits one operation and waits for its completion.
inline Completion move_pieces(Queue* queue, File* file, uint64_t offset,
                              std::span<const iovec> pieces, bool write) {
    Operation operation{
        .file = file, .offset = offset, .pieces = pieces, .cookie = offset ^ 0x5eed};
    operation.write = write;
    EXPECT_EQ(queue->submit({&operation, 1}), 1u);
    Completion completion;
    EXPECT_EQ(queue->reap({&completion, 1}, true), 1u);
    EXPECT_EQ(completion.cookie, operation.cookie);
    EXPECT_EQ(queue->outstanding(), 0u);
    return completion;
}

inline Completion read_pieces(Queue* queue, File* file, uint64_t offset,
                              std::span<const iovec> pieces) {
    return move_pieces(queue, file, offset, pieces, false);
}
inline Completion write_pieces(Queue* queue, File* file, uint64_t offset,
                               std::span<const iovec> pieces) {
    return move_pieces(queue, file, offset, pieces, true);
}

inline Completion read_into(Queue* queue, File* file, uint64_t offset, Bytes* bytes) {
    const iovec piece{bytes->data(), bytes->size()};
    return read_pieces(queue, file, offset, {&piece, 1});
}
inline Completion write_from(Queue* queue, File* file, uint64_t offset, const Bytes& bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return write_pieces(queue, file, offset, {&piece, 1});
}

}  // namespace penstock::storage
