// Goal: descriptors name the file that was opened and no other, slots and directory go round for
// ever, and a file whose bytes may have changed is never served from its old pages.
#include "service/file_table.h"

#include <gtest/gtest.h>
#include <time.h>

#include <cerrno>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "page_cache/page_cache_fixture.h"
#include "penstock/abi/limits.h"
#include "storage/posix.h"
#include "storage/storage_fixture.h"

namespace penstock::service {
namespace {

using storage::Identity;

int64_t now_ns() {
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

constexpr int64_t kLongAgo = 1'000'000'000;

// Files that are nothing but what stat would say.
class StatStorage final : public storage::Storage {
public:
    storage::Kind kind() const override { return storage::Kind::kRam; }
    std::string description() const override { return "names only"; }
    Result<std::shared_ptr<storage::File>> open(const std::string& path, int) override {
        const auto found = files.find(path);
        if (found == files.end()) return Status{ENOENT, "open", ""};
        return std::shared_ptr<storage::File>(std::make_shared<StatFile>(found->second));
    }
    Result<std::unique_ptr<storage::Queue>> make_queue(uint32_t) override {
        return Status{ENOSYS, "queue", ""};
    }

    std::map<std::string, Identity> files;

private:
    struct StatFile final : storage::File {
        explicit StatFile(const Identity& identity) : File(identity, {}, -1) {}
        Status stat(Identity* out) const override {
            *out = identity();
            return {};
        }
    };
};

class FileTableTest : public ::testing::Test {
protected:
    FileTableTest() {
        device_ = backend::open_cpu({.permits = 1, .memory_size = 16 << 20}).value();
        table_ = std::make_unique<FileTable>(storage_, device_.get(), 0, &memory_.state(),
                                             memory_.state().files, nullptr);
    }

    void make(const std::string& name, uint64_t inode, uint64_t size = 1000,
              int64_t time_ns = kLongAgo) {
        storage_->files[name] = {.device = 1,
                                 .inode = inode,
                                 .generation = 0,
                                 .size = size,
                                 .mtime_ns = time_ns,
                                 .ctime_ns = time_ns};
    }
    Result<Descriptor> try_open(const std::string& name, Opener opener = Opener::kHost) {
        return table_->open(name, 0, opener);
    }
    Descriptor open(const std::string& name, Opener opener = Opener::kHost) {
        auto opened = try_open(name, opener);
        EXPECT_TRUE(opened.ok()) << opened.status().message();
        return opened.value();
    }
    void close(Descriptor descriptor) {
        EXPECT_TRUE(table_->close(descriptor, Opener::kHost).ok());
    }
    static uint32_t slot(Descriptor descriptor) { return descriptor_slot(descriptor); }
    // Returns a request for the first page of the descriptor's file.
    static Request page_of(Descriptor descriptor) {
        Request request;
        request.file_slot = slot(descriptor);
        return request;
    }

    std::shared_ptr<StatStorage> storage_ = std::make_shared<StatStorage>();
    page_cache::Memory memory_{{.frames = 64, .teams = 4}};
    std::shared_ptr<backend::Device> device_;
    std::unique_ptr<FileTable> table_;
};

TEST_F(FileTableTest, OpensAreCountedAndClosedOnesAreNoMore) {
    make("a", 1);
    make("b", 2);
    const Descriptor a = open("a"), again = open("a"), b = open("b");
    EXPECT_EQ(a, again);
    EXPECT_NE(a, b);
    EXPECT_EQ(table_->open_count(), 3u);
    EXPECT_EQ(table_->size(a).value(), 1000u);
    close(a);
    EXPECT_EQ(table_->size(a).value(), 1000u);
    close(a);
    EXPECT_EQ(table_->close(a, Opener::kHost).status().error_number(), EBADF);
    EXPECT_EQ(table_->size(a).status().error_number(), EBADF);
    EXPECT_EQ(table_->find(page_of(a)), nullptr);
    const Descriptor later = open("a");
    EXPECT_EQ(slot(later), slot(a)) << "its pages are still there";
    EXPECT_NE(later, a) << "but the old descriptor does not name it";
    EXPECT_EQ(table_->close(a, Opener::kHost).status().error_number(), EBADF);
    close(later);
    close(b);
    EXPECT_EQ(table_->open_count(), 0u);
}

TEST_F(FileTableTest, WhatTheStorageSays) {
    EXPECT_EQ(try_open("none").status().error_number(), ENOENT);
    EXPECT_EQ(table_->open("none", 3, Opener::kHost).status().error_number(), EINVAL);
    for (const Descriptor garbage : {Descriptor{-1}, Descriptor{0}, INT64_MAX,
                                     make_descriptor(1, 0, 1), make_descriptor(1, 4000, 1)}) {
        EXPECT_EQ(table_->close(garbage, Opener::kHost).status().error_number(), EBADF);
    }
}

TEST_F(FileTableTest, KernelsFilesAreClosedForThem) {
    make("a", 1);
    make("b", 2);
    const Descriptor host = open("a");
    open("a", Opener::kKernel);
    open("a", Opener::kKernel);
    open("b", Opener::kKernel);
    EXPECT_EQ(table_->close_kernel_files(), 3u);
    EXPECT_EQ(table_->open_count(), 1u);
    EXPECT_EQ(table_->close_kernel_files(), 0u);
    EXPECT_TRUE(table_->size(host).ok());
    // The host closes what a kernel opened: one less to close for it.
    open("b", Opener::kKernel);
    close(open("b", Opener::kKernel));
    EXPECT_EQ(table_->close_kernel_files(), 1u);
    close(host);
}

TEST_F(FileTableTest, EverySlotIsUsedThenTheLongestClosedGoesFirst) {
    for (uint32_t i = 0; i <= limits::kFilesMax; ++i) make("f" + std::to_string(i), i + 1);
    std::vector<Descriptor> opened;
    for (uint32_t i = 0; i < limits::kFilesMax; ++i)
        opened.push_back(open("f" + std::to_string(i)));
    const std::string last = "f" + std::to_string(limits::kFilesMax);
    EXPECT_EQ(try_open(last).status().error_number(), ENFILE);
    close(opened[9]);
    close(opened[3]);
    close(opened[5]);
    // The pages of the first of them are held by a view, so the next goes.
    ASSERT_NE(memory_.fill_page(slot(opened[9]), 0), nullptr);
    const device::PinnedEntry view = device::pin_page(memory_.state(),
                                                      memory_.file(slot(opened[9])), 0);
    const Descriptor newest = open(last);
    EXPECT_EQ(slot(newest), slot(opened[3]));
    EXPECT_EQ(slot(open("f5")), slot(opened[5])) << "not forgotten";
    EXPECT_EQ(slot(open("f9")), slot(opened[9]));
    EXPECT_EQ(try_open("f3").status().error_number(), ENFILE);
    device::unpin<device::DeviceWords>(*view.entry);
    EXPECT_EQ(table_->open_count(), limits::kFilesMax);
}

TEST_F(FileTableTest, SlotsGoRoundForEver) {
    for (uint32_t i = 0; i < 3 * limits::kFilesMax; ++i) {
        make("f", i + 1, 100 + i);
        const Descriptor descriptor = open("f");
        ASSERT_EQ(table_->size(descriptor).value(), 100u + i);
        if (i % 100 == 0) {
            ASSERT_NE(memory_.fill_page(slot(descriptor), 0), nullptr);
        }
        close(descriptor);
    }
    EXPECT_EQ(page_cache::check_invariants(memory_.state()), 0);
}

// The directory is one row of words; files of large sizes leave holes in it, which join again.
TEST_F(FileTableTest, DirectoryHolesJoinAgain) {
    const uint64_t words = memory_.state().directory_size;
    const uint64_t word_size = uint64_t{limits::kLeafEntries} * 4096;
    for (uint64_t i = 0; i < 4; ++i)
        make("quarter" + std::to_string(i), i + 1, words / 4 * word_size);
    make("half", 10, words / 2 * word_size);
    make("all", 11, words * word_size);
    make("more", 12, words * word_size + 1);
    EXPECT_EQ(try_open("more").status().error_number(), EFBIG);
    std::vector<Descriptor> quarters;
    for (int i = 0; i < 4; ++i) quarters.push_back(open("quarter" + std::to_string(i)));
    EXPECT_EQ(try_open("half").status().error_number(), ENFILE);
    close(quarters[0]);
    close(quarters[2]);
    EXPECT_EQ(try_open("half").status().error_number(), ENFILE)
        << "two holes, none of them large enough";
    close(quarters[1]);
    const Descriptor half = open("half");
    close(half);
    close(quarters[3]);
    const Descriptor all = open("all");
    EXPECT_EQ(memory_.file(slot(all)).directory_first, 0u);
    EXPECT_EQ(memory_.file(slot(all)).directory_count, words);
    make("empty", 13, 0);
    EXPECT_EQ(try_open("empty").status().error_number(), ENFILE) << "also no bytes take a word";
    close(all);
    close(open("empty"));
}

TEST_F(FileTableTest, AChangedFileGetsASlotOfItsOwn) {
    make("f", 1, 1000);
    const Descriptor old = open("f");
    make("f", 1, 1000, kLongAgo + 5);  // other times
    const Descriptor changed = open("f");
    EXPECT_NE(slot(changed), slot(old));
    EXPECT_TRUE(table_->size(old).ok()) << "a thread that has it open goes on";
    make("f", 2, 500);  // another file of that name
    const Descriptor replaced = open("f");
    EXPECT_NE(slot(replaced), slot(changed));
    EXPECT_EQ(table_->size(replaced).value(), 500u);
    close(old);
    close(changed);
    close(replaced);
    EXPECT_EQ(slot(open("f")), slot(replaced));
}

// Times within two ticks of now may hide a change: the pages are dropped, the slot is the same.
TEST_F(FileTableTest, PagesOfAFreshFileAreNotTrusted) {
    make("f", 1, 8192, now_ns());
    const Descriptor first = open("f");
    PageEntry* entry = memory_.fill_page(slot(first), 1);
    ASSERT_NE(entry, nullptr);
    const Descriptor second = open("f");
    EXPECT_EQ(second, first);
    EXPECT_EQ(state_of(*entry), PageState::kEmpty);
    // While a page is held its bytes must stay: then the file gets another slot.
    ASSERT_NE(memory_.fill_page(slot(first), 1), nullptr);
    const device::PinnedEntry view = device::pin_page(memory_.state(), memory_.file(slot(first)),
                                                      1);
    const Descriptor third = open("f");
    EXPECT_NE(slot(third), slot(first));
    device::unpin<device::DeviceWords>(*view.entry);
    for (const Descriptor descriptor : {first, second, third}) close(descriptor);
}

TEST_F(FileTableTest, PagesOfAnOldFileAreKept) {
    for (const int64_t time_ns : {kLongAgo, now_ns() - 1'000'000'000}) {
        make("f", 1, 8192, time_ns);
        const Descriptor first = open("f");
        PageEntry* entry = memory_.fill_page(slot(first), 1);
        ASSERT_NE(entry, nullptr);
        close(first);
        const Descriptor second = open("f");
        EXPECT_EQ(slot(second), slot(first));
        EXPECT_EQ(state_of(*entry), PageState::kValid);
        close(second);
    }
}

TEST_F(FileTableTest, AFileFoundShorterIsNotServedAgain) {
    make("f", 1, 10'000);
    const Descriptor first = open("f");
    EXPECT_TRUE(table_->shrink(page_of(first), 0, 4000).ok());
    EXPECT_TRUE(table_->shrink(page_of(first), 4096, 1904).ok()) << "it never grows";
    EXPECT_EQ(table_->size(first).value(), 4000u);
    const Descriptor second = open("f");
    EXPECT_NE(slot(second), slot(first));
    EXPECT_EQ(table_->size(second).value(), 10'000u);
    close(first);
    close(second);
}

// Symptom: pages that came before a file was cut were had as they had been, though reads behind
// them had found that it was shorter.
TEST_F(FileTableTest, AFileWithoutAPageEndsWhereItsSizeIs) {
    const storage::ScratchFolder folder;
    folder.write("f", 0, storage::Bytes(20'000));
    FileTable table(storage::open_posix(), device_.get(), 0, &memory_.state(),
                    memory_.state().files, nullptr);
    const Descriptor file = table.open(folder.path("f"), 0, Opener::kHost).value();
    ASSERT_EQ(truncate(folder.path("f").c_str(), 5000), 0);
    EXPECT_TRUE(table.shrink(page_of(file), 12'288, 0).ok());
    EXPECT_EQ(table.size(file).value(), 5000u);
    EXPECT_TRUE(table.close(file, Opener::kHost).ok());
}

// The last writer closes the file while another thread opens it. What the opener saw of the file
// before that is old.
TEST_F(FileTableTest, AFileIsLookedAtWhenNobodyCanCloseIt) {
    const storage::ScratchFolder folder;
    folder.write("f", 0, {});
    const std::string path = folder.path("f");
    std::function<void()> meanwhile;
    const auto costs_of = [&](const storage::File&) {  // between the look and the lock
        if (meanwhile) std::exchange(meanwhile, nullptr)();
        return std::make_shared<transfer::Costs>();
    };
    FileTable table(storage::open_posix(), device_.get(), 0, &memory_.state(),
                    memory_.state().files, nullptr, costs_of);
    const auto close = [&](Descriptor file, Closing how) {
        return table.close(file, Opener::kKernel, how).value();
    };
    constexpr int kOnce = kOpenWriteOnly | kOpenWriteOnce;
    const Descriptor writer = table.open(path, kOnce, Opener::kKernel).value();
    meanwhile = [&] {
        folder.write("f", 0, storage::random_bytes(1, 5000));
        EXPECT_EQ(close(writer, Closing::kAsks), kWriteBackFirst);
        EXPECT_EQ(close(writer, Closing::kHasWritten), 0);
    };
    for (int i = 0; i < 2; ++i) {
        const Descriptor file = table.open(path, kOpenReadWrite, Opener::kKernel).value();
        EXPECT_EQ(table.size(file).value(), 5000u) << i;
    }
}

// The file has a writer by then, which leaves its times as they were.
TEST_F(FileTableTest, InvalidPagesAreDroppedThoughTheFileIsAsItWas) {
    make("f", 1, 8192);
    const Descriptor reader = open("f");
    PageEntry* entry = memory_.fill_page(slot(reader), 1);
    ASSERT_NE(entry, nullptr);
    const Descriptor writer = table_->open("f", kOpenReadWrite, Opener::kHost).value();
    ASSERT_EQ(slot(writer), slot(reader));
    table_->invalidate(slot(reader));
    EXPECT_EQ(table_->close(writer, Opener::kHost).value(), kWriteBackFirst);
    EXPECT_EQ(table_->close(writer, Opener::kHost, Closing::kHasWritten).value(), 0);
    ASSERT_EQ(state_of(*entry), PageState::kValid);
    const Descriptor again = open("f");
    EXPECT_EQ(state_of(*entry), PageState::kEmpty);
    for (const Descriptor descriptor : {reader, again}) close(descriptor);
}

// No open succeeds meanwhile. If the discarding never ends, later opens get another slot.
TEST_F(FileTableTest, AFileIsOpenedAfterItsDataIsDiscarded) {
    make("f", 1, 8192);
    const auto write = [&] { return table_->open("f", kOpenReadWrite, Opener::kKernel).value(); };
    const auto give_up = [&](Descriptor file) {
        EXPECT_EQ(table_->close(file, Opener::kKernel).value(), kWriteBackFirst);
        EXPECT_EQ(table_->close(file, Opener::kKernel, Closing::kCannotWrite).value(),
                  kForgetFirst);
        EXPECT_EQ(try_open("f").status().error_number(), EAGAIN);
    };
    for (const Closing how : {Closing::kHasForgotten, Closing::kHasLeft}) {
        const Descriptor reader = open("f"), writer = write();
        give_up(writer);
        EXPECT_EQ(table_->close(writer, Opener::kKernel, how).value(), 0);
        const Descriptor again = open("f");
        EXPECT_EQ(slot(again) == slot(reader), how == Closing::kHasForgotten);
        close(reader);
        close(again);
    }
    const Descriptor writer = write();
    const uint64_t number = table_->number_of(slot(writer));
    give_up(writer);
    EXPECT_EQ(table_->close_kernel_files(), 1u);
    const Descriptor again = open("f");
    EXPECT_NE(table_->number_of(slot(again)), number);
    close(again);
}

// A file that is opened for writing again and again takes no more of the directory each time:
// every sync walks over that.
TEST_F(FileTableTest, AFileGrowsByItsSizeNotByHowOftenItIsOpened) {
    const storage::ScratchFolder folder;
    folder.write("f", 0, storage::random_bytes(1, 5000));
    const std::string path = folder.path("f");
    FileTable table(storage::open_posix(), device_.get(), 0, &memory_.state(),
                    memory_.state().files, nullptr);
    uint64_t first_count = 0;
    for (int i = 0; i < 6; ++i) {
        const Descriptor reader = table.open(path, kOpenReadOnly, Opener::kHost).value();
        const Descriptor writer = table.open(path, kOpenReadWrite, Opener::kHost).value();
        const uint64_t count = memory_.state().files[descriptor_slot(writer)].directory_count;
        if (i == 0) first_count = count;
        EXPECT_EQ(count, first_count) << i;
        EXPECT_EQ(table.close(writer, Opener::kHost).value(), kWriteBackFirst);
        EXPECT_EQ(table.close(writer, Opener::kHost, Closing::kHasWritten).value(), 0);
        EXPECT_EQ(table.close(reader, Opener::kHost).value(), 0);
    }
}

}  // namespace
}  // namespace penstock::service
