// Goal: files that other programs change. Who opens after a change sees the file as it is then,
// also when the change came in the same tick of the clock; who has it open sees short counts and
// whole pages, old or new, never a mix within one.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <tuple>
#include <vector>

#include "system/machine.h"

namespace penstock::system_test {
namespace {

using Blocks = std::vector<std::vector<Step>>;
using storage::Kind;

constexpr uint64_t kPage = 4096;

class ChangeTest : public ::testing::TestWithParam<std::tuple<Kind, bool>> {
protected:
    void SetUp() override {
        const auto [kind, remote] = GetParam();
        if (on_gpu() && remote) GTEST_SKIP() << "a GPU always is";
        machine_ = std::make_unique<Machine>(
            Shape{.permits = 2, .frames = 64, .lanes = 8, .storage = kind, .remote = remote});
        ASSERT_TRUE(machine_->ok());
        path_ = machine_->files().path("f");
    }

    void create(uint64_t size, uint64_t seed) { machine_->create_file("f", size, seed); }
    void overwrite(uint64_t offset, uint64_t size, uint64_t seed) {
        ASSERT_TRUE(machine_->files().write("f", offset, storage::random_bytes(seed, size)));
    }
    const testing::ReferenceFile& file() { return machine_->files().file("f"); }
    Descriptor open() {
        auto opened = machine_->fs().open(path_);
        EXPECT_TRUE(opened.ok()) << opened.status().message();
        return opened.value();
    }
    void close(Descriptor descriptor) { EXPECT_TRUE(machine_->fs().close(descriptor).ok()); }

    // What gread of [offset, offset + size) returns, and its bytes.
    Bytes read(Descriptor descriptor, uint64_t offset, uint64_t size, int64_t* result) {
        machine_->scratch().clear();
        auto* out = machine_->scratch().array<std::byte>(size);
        Blocks blocks = {
            {set_step(0, descriptor), read_step(0, static_cast<int64_t>(offset), size, out)}};
        const Status status = machine_->run(&blocks);
        EXPECT_TRUE(status.ok()) << status.message();
        *result = blocks[0][1].result;
        return {out, out + std::max<int64_t>(0, *result)};
    }

    // A fresh open reads the whole file, and it is what it should be.
    void expect_fresh(const std::string& what) {
        const Descriptor descriptor = open();
        int64_t result = 0;
        const Bytes got = read(descriptor, 0, file().size() + 10, &result);
        EXPECT_EQ(result, static_cast<int64_t>(file().size())) << what;
        EXPECT_EQ(file().mismatch(0, got), got.size()) << what;
        close(descriptor);
        EXPECT_EQ(machine_->broken_invariant(), 0) << what;
    }

    std::unique_ptr<Machine> machine_;
    std::string path_;
};

INSTANTIATE_TEST_SUITE_P(Kinds, ChangeTest,
                         ::testing::Combine(::testing::Values(Kind::kPosix, Kind::kRam),
                                            ::testing::Bool()),
                         [](const auto& made) {
                             return std::string(storage::name(std::get<0>(made.param))) +
                                    (std::get<1>(made.param) ? "_remote" : "");
                         });

// Many changes in a row are many to one tick of the file system's clock (4 ms).
TEST_P(ChangeTest, EveryChangeIsSeenByTheNextOpen) {
    create(20 * kPage, 1);
    for (uint64_t round = 0; round < 40; ++round) {
        expect_fresh("before change " + std::to_string(round));
        switch (round % 4) {
            case 0:
                overwrite(round * 1000 % (file().size() - 100), 100, round);
                break;
            case 1:
                ASSERT_TRUE(machine_->files().resize("f", file().size() - 5000));
                break;
            case 2:
                overwrite(file().size(), 7000, round);
                break;
            default:
                ASSERT_TRUE(machine_->files().resize("f", 0));
                overwrite(0, 15 * kPage, round);
        }
        expect_fresh("after change " + std::to_string(round));
    }
}

TEST_P(ChangeTest, AReplacedFileIsAnotherFile) {
    create(3 * kPage, 1);
    expect_fresh("before");
    const Descriptor old = open();
    const Bytes old_bytes = storage::random_bytes(1, 3 * kPage);
    ASSERT_TRUE(machine_->files().remove("f"));
    create(2 * kPage, 2);
    expect_fresh("after");
    int64_t result = 0;
    EXPECT_EQ(read(old, 0, 4 * kPage, &result), old_bytes);
    close(old);
}

TEST_P(ChangeTest, AFileCutOffWhileOpenGivesShortCounts) {
    create(10 * kPage, 3);
    const Bytes all = storage::random_bytes(3, 10 * kPage);
    const Descriptor descriptor = open();
    int64_t result = 0;
    ASSERT_EQ(read(descriptor, 0, 2 * kPage, &result).size(), 2 * kPage);
    ASSERT_EQ(read(descriptor, 7 * kPage, kPage, &result).size(), kPage);
    const uint64_t cut = 3 * kPage + kPage / 2;
    ASSERT_TRUE(machine_->files().resize("f", cut));
    // A page that is cached may still be had; one that is not tells where the file ends.
    const Bytes got = read(descriptor, 0, 10 * kPage, &result);
    EXPECT_EQ(result, static_cast<int64_t>(cut));
    EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin()));
    EXPECT_EQ(machine_->fs().size(descriptor).value(), cut);
    read(descriptor, cut, 100, &result);
    EXPECT_EQ(result, 0);
    read(descriptor, 7 * kPage, 100, &result);
    EXPECT_EQ(result, 0);
    // It grows again: for who opens now.
    overwrite(cut, 3 * kPage, 4);
    expect_fresh("grown again");
    read(descriptor, 0, 10 * kPage, &result);
    EXPECT_LE(result, static_cast<int64_t>(file().size()));
    close(descriptor);
    expect_fresh("after the old descriptor was closed");
}

TEST_P(ChangeTest, CutToNothingWhileOpen) {
    create(4 * kPage, 5);
    const Descriptor descriptor = open();
    ASSERT_TRUE(machine_->files().resize("f", 0));
    int64_t result = 0;
    read(descriptor, 100, 3 * kPage, &result);
    EXPECT_EQ(result, 0);
    close(descriptor);
    expect_fresh("empty");
}

TEST_P(ChangeTest, PagesOfAnOpenFileAreOldOrNew) {
    create(16 * kPage, 6);
    const Bytes before = storage::random_bytes(6, 16 * kPage),
                after = storage::random_bytes(7, 16 * kPage);
    const Descriptor descriptor = open();
    int64_t result = 0;
    read(descriptor, 0, 5 * kPage + 1, &result);
    overwrite(0, 16 * kPage, 7);
    const Bytes got = read(descriptor, 0, 16 * kPage, &result);
    ASSERT_EQ(result, static_cast<int64_t>(16 * kPage));
    for (uint64_t page = 0; page < 16; ++page) {
        const auto first = static_cast<ptrdiff_t>(page * kPage);
        const bool is_old = std::equal(got.begin() + first, got.begin() + first + kPage,
                                       before.begin() + first);
        const bool is_new = std::equal(got.begin() + first, got.begin() + first + kPage,
                                       after.begin() + first);
        EXPECT_TRUE(page < 6 ? is_old : is_new) << "page " << page;
    }
    expect_fresh("a new open");
    close(descriptor);
}

// Symptom: each open of a file that has just been written took a file slot of its own, so that many
// blocks that open one fresh file had no pages in common.
TEST_P(ChangeTest, OpensOfAFreshFileShareItsPages) {
    create(8 * kPage, 8);
    std::vector<Descriptor> opened;
    for (int i = 0; i < 50; ++i) opened.push_back(open());
    for (const Descriptor descriptor : opened)
        EXPECT_EQ(descriptor_slot(descriptor), descriptor_slot(opened[0]));
    for (const Descriptor descriptor : opened) close(descriptor);
}

// A view holds its page through changes, closes and opens.
TEST_P(ChangeTest, AViewKeepsItsBytes) {
    create(2 * kPage, 9);
    const Bytes before = storage::random_bytes(9, 2 * kPage);
    auto& scratch = machine_->scratch();
    const char* path = scratch.text(path_);
    Blocks blocks = {{open_step(0, path), map_step(0, 0, 0, kPage, scratch.array<std::byte>(kPage)),
                      close_step(0)}};
    ASSERT_TRUE(machine_->run(&blocks).ok());
    ASSERT_EQ(blocks[0][1].result, static_cast<int64_t>(kPage));
    overwrite(0, 2 * kPage, 10);
    expect_fresh("while a view of the old bytes is mapped");
    auto left = machine_->fs().reclaim();
    ASSERT_TRUE(left.ok());
    EXPECT_EQ(left.value().views, 1u);
    EXPECT_EQ(left.value().descriptors, 0u);
    expect_fresh("after the view was dropped");
}

}  // namespace
}  // namespace penstock::system_test
