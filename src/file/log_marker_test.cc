// Goal: a marker is read as it was written, and tells a folder from its copy.
#include "file/log_marker.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "file/write_log_fixture.h"

namespace penstock {
namespace {

class LogMarkerTest : public WriteLogTest {
protected:
    void SetUp() override {
        WriteLogTest::SetUp();
        root_ = ::open(folder_, O_RDONLY | O_DIRECTORY);
        marker_ = std::string(folder_) + "/.penstock-log";
        made_.push_back(marker_);
    }
    void TearDown() override {
        ::close(root_);
        WriteLogTest::TearDown();
    }

    int root_ = -1;
    std::string marker_;
};

TEST_F(LogMarkerTest, AMarkerIsReadAsItWasWritten) {
    EXPECT_EQ(file::read_marker(root_).status().error_number(), ENOENT);
    auto marker = file::new_marker(root_, folder_, tier_).value();
    EXPECT_NE(marker.generation, file::new_marker(root_, folder_, tier_).value().generation);
    marker.folder = "/a line\nand\\nothing else\\";
    for (const char* host : {"one", ""}) {
        marker.host = host;
        const auto ahead_ns = file::write_marker(root_, marker);
        ASSERT_TRUE(ahead_ns.ok()) << ahead_ns.status().message();
        EXPECT_LT(std::abs(ahead_ns.value()), 60'000'000'000);  // one machine has one clock
        const auto found = file::read_marker(root_);
        ASSERT_TRUE(found.ok()) << found.status().message();
        EXPECT_EQ(found.value().generation, marker.generation);
        EXPECT_EQ(found.value().folder, marker.folder);
        EXPECT_EQ(found.value().host, host);
        EXPECT_EQ(found.value().path, folder_);
        EXPECT_EQ(found.value().root.inode, marker.root.inode);
        EXPECT_EQ(found.value().root.birth_ns, marker.root.birth_ns);
    }
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(file::remove_marker(root_).ok());
    EXPECT_EQ(file::read_marker(root_).status().error_number(), ENOENT);
}

TEST_F(LogMarkerTest, ADamagedMarkerIsToldFromNone) {
    ASSERT_TRUE(file::write_marker(root_, file::new_marker(root_, folder_, tier_).value()).ok());
    const Bytes whole = bytes_of(marker_);
    for (size_t at = 0; at <= whole.size(); ++at) {
        Bytes wrong = whole;
        if (at < whole.size()) wrong[at] ^= std::byte{1};
        if (at == whole.size()) wrong.pop_back();
        std::ofstream(marker_, std::ios::trunc | std::ios::binary)
            .write(reinterpret_cast<const char*>(wrong.data()),
                   static_cast<std::streamsize>(wrong.size()));
        ASSERT_EQ(file::read_marker(root_).status().error_number(), EUCLEAN) << "byte " << at;
    }
    ASSERT_EQ(unlink(marker_.c_str()), 0);
    ASSERT_EQ(mkdir(marker_.c_str(), 0700), 0);
    EXPECT_EQ(file::read_marker(root_).status().error_number(), EUCLEAN);
    EXPECT_FALSE(file::remove_marker(root_).ok());
    ASSERT_EQ(rmdir(marker_.c_str()), 0);
    ASSERT_EQ(symlink("a", marker_.c_str()), 0);
    EXPECT_EQ(file::read_marker(root_).status().error_number(), ELOOP);
}

TEST_F(LogMarkerTest, AMarkerIsOfOneFolder) {
    const auto marker = file::new_marker(root_, folder_, tier_).value();
    EXPECT_TRUE(file::is_of(marker, root_, folder_));
    EXPECT_TRUE(file::is_of(marker, root_, "/moved"));
    const int other = ::open(tier_, O_RDONLY | O_DIRECTORY);
    EXPECT_TRUE(file::is_of(marker, other, folder_));  // what a backup has brought back
    EXPECT_FALSE(file::is_of(marker, other, tier_));
    ::close(other);
}

TEST_F(LogMarkerTest, ALogIsInUseWhileItsProcessHasIt) {
    auto marker = file::new_marker(root_, folder_, tier_).value();
    EXPECT_FALSE(file::is_in_use(marker));
    auto log = open_log();
    EXPECT_TRUE(file::is_in_use(marker));
    log = nullptr;
    EXPECT_FALSE(file::is_in_use(marker));
    marker.host += "x";
    EXPECT_TRUE(file::is_in_use(marker));  // perhaps
}

}  // namespace
}  // namespace penstock
