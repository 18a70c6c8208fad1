// Goal: files held in memory behave as files do, also while they change under their readers.
#include "storage/ram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "base/units.h"
#include "storage/storage_fixture.h"

namespace penstock::storage {
namespace {

TEST(Ram, NamesComeAndGo) {
    const auto ram = std::make_shared<RamStorage>();
    EXPECT_EQ(ram->open("a", O_RDONLY).status().error_number(), ENOENT);
    EXPECT_EQ(ram->unlink("a").error_number(), ENOENT);
    EXPECT_EQ(ram->resize("a", 1).error_number(), ENOENT);
    EXPECT_EQ(ram->write("a", 0, {}).error_number(), ENOENT);
    ASSERT_TRUE(ram->create("a", 10).ok());
    EXPECT_EQ(ram->create("a", 10).error_number(), EEXIST);
    const std::shared_ptr<File> file = ram->open("a", O_RDONLY).value();
    ASSERT_TRUE(ram->unlink("a").ok());
    EXPECT_EQ(ram->open("a", O_RDONLY).status().error_number(), ENOENT);
    Bytes got(20, std::byte{1});
    const std::unique_ptr<Queue> queue = std::move(ram->make_queue(1).value());
    EXPECT_EQ(read_into(queue.get(), file.get(), 0, &got).bytes, 10u);  // lives on while open
}

TEST(Ram, EveryChangeShows) {
    const auto ram = std::make_shared<RamStorage>();
    ASSERT_TRUE(ram->create("a", 10).ok());
    const std::shared_ptr<File> file = ram->open("a", O_RDONLY).value();
    Identity last = file->identity();
    const std::byte byte{7};
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(ram->write("a", 3, {&byte, 1}).ok());  // the same byte again is a change too
        Identity now;
        ASSERT_TRUE(file->stat(&now).ok());
        EXPECT_NE(now, last);
        EXPECT_TRUE(now.same_file(last));
        last = now;
    }
}

TEST(Ram, WhatCannotBeHeldIsRefused) {
    const auto ram = std::make_shared<RamStorage>();
    EXPECT_EQ(ram->create("a", INT64_MAX).error_number(), ENOMEM);
    EXPECT_EQ(ram->create("a", UINT64_MAX).error_number(), ENOMEM);
    ASSERT_TRUE(ram->create("a", 10).ok());
    const std::byte byte{7};
    EXPECT_EQ(ram->write("a", INT64_MAX, {&byte, 1}).error_number(), EFBIG);
    EXPECT_EQ(ram->write("a", UINT64_MAX, {&byte, 1}).error_number(), EFBIG);
    EXPECT_EQ(ram->write("a", uint64_t{1} << 60, {&byte, 1}).error_number(), ENOMEM);
    EXPECT_EQ(ram->open("a", O_RDONLY).value()->size(), 10u);
}

TEST(Ram, FilesOfAnotherStorageAreRefused) {
    const ScratchFolder folder;
    folder.write("f", 0, random_bytes(1, 10));
    const std::shared_ptr<Storage> posix = make_storage({}).value();
    const std::shared_ptr<File> foreign = posix->open(folder.path("f"), O_RDONLY).value();
    const auto ram = std::make_shared<RamStorage>();
    const std::unique_ptr<Queue> queue = std::move(ram->make_queue(1).value());
    Bytes got(10);
    EXPECT_EQ(read_into(queue.get(), foreign.get(), 0, &got).error, EBADF);
}

// Every write fills the file with one value, so a read that sees two was torn.
TEST(Ram, ReadersSeeWholeChanges) {
    const auto ram = std::make_shared<RamStorage>();
    ASSERT_TRUE(ram->create("a", 5000).ok());
    const std::shared_ptr<File> file = ram->open("a", O_RDONLY).value();
    std::vector<std::thread> readers;
    readers.reserve(2);
    for (int i = 0; i < 2; ++i) {
        readers.emplace_back([&] {
            const std::unique_ptr<Queue> queue = std::move(ram->make_queue(1).value());
            for (int round = 0; round < 300; ++round) {
                Bytes got(5000);
                const uint64_t size = read_into(queue.get(), file.get(), 0, &got).bytes;
                for (uint64_t at = 1; at < size; ++at) ASSERT_EQ(got[at], got[0]);
            }
        });
    }
    for (int round = 0; round < 300; ++round) {
        const Bytes bytes(5000, static_cast<std::byte>(round));
        ASSERT_TRUE(ram->write("a", 0, bytes).ok());
        if (round % 50 == 0) {
            ASSERT_TRUE(ram->resize("a", 3 * base::kMiB).ok());  // moves the array
            ASSERT_TRUE(ram->resize("a", 0).ok());
        }
    }
    for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace penstock::storage
