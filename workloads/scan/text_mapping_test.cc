// Goal: a mapped file's bytes are the file's; those that the file loses are zeros and told, and no
// other bus error is taken for that.
#include "scan/text_mapping.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "penstock/device.h"
#include "scan/grep_reference.h"

namespace penstock::scan {
namespace {

constexpr size_t kSize = (3 << 20) + 5;

class TextMappingTest : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_TRUE(Device::open("cpu:1").ok());  // its handler of SIGBUS comes first
        path_ = folder_.write("text", std::string(kSize, 'x'));
        file_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
        ASSERT_GE(file_, 0);
    }
    void TearDown() override { close(file_); }

    TemporaryFolder folder_;
    std::string path_;
    int file_ = -1;
};

TEST_F(TextMappingTest, BytesAreTheFiles) {
    Result<TextMapping> mapping = TextMapping::create(file_, kSize);
    ASSERT_TRUE(mapping.ok()) << mapping.status().message();
    const TextMapping moved = std::move(mapping.value());
    ASSERT_EQ(moved.size(), kSize);
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(moved.bytes()), kSize),
              std::string(kSize, 'x'));
    EXPECT_FALSE(moved.damaged());
    EXPECT_EQ(TextMapping().bytes(), nullptr);
    EXPECT_FALSE(TextMapping().damaged());
}

TEST_F(TextMappingTest, BytesThatAreCutOffAreZerosAndTold) {
    const Result<TextMapping> cut = TextMapping::create(file_, kSize);
    const std::string other_path = folder_.write("other", std::string(kSize, 'y'));
    const int other_file = open(other_path.c_str(), O_RDONLY | O_CLOEXEC);
    const Result<TextMapping> whole = TextMapping::create(other_file, kSize);
    close(other_file);
    ASSERT_TRUE(cut.ok() && whole.ok());
    ASSERT_EQ(truncate(path_.c_str(), 1 << 20), 0);
    size_t zeros = 0;
    for (size_t i = 0; i < kSize; ++i) zeros += cut.value().bytes()[i] == 0;
    EXPECT_EQ(zeros, kSize - (1 << 20));
    EXPECT_TRUE(cut.value().damaged());
    EXPECT_EQ(whole.value().bytes()[kSize - 1], 'y');
    EXPECT_FALSE(whole.value().damaged());
}

TEST_F(TextMappingTest, ASlotIsUsedAgainAndTheyAreLimited) {
    std::vector<TextMapping> mappings;
    for (;;) {
        Result<TextMapping> mapping = TextMapping::create(file_, kSize);
        if (!mapping.ok()) {
            EXPECT_EQ(mapping.status().error_number(), ENFILE);
            break;
        }
        mappings.push_back(std::move(mapping.value()));
    }
    EXPECT_EQ(mappings.size(), kMappingsMax);
    mappings.pop_back();
    EXPECT_TRUE(TextMapping::create(file_, kSize).ok());
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they end it their own way
using TextMappingDeathTest = TextMappingTest;

TEST_F(TextMappingDeathTest, AnotherBusErrorEndsTheProcess) {
    const Result<TextMapping> mapping = TextMapping::create(file_, kSize);
    ASSERT_TRUE(mapping.ok());
    void* const others = mmap(nullptr, kSize, PROT_READ, MAP_SHARED, file_, 0);
    ASSERT_NE(others, MAP_FAILED);
    ASSERT_EQ(truncate(path_.c_str(), 0), 0);
    EXPECT_EXIT((void)*static_cast<volatile char*>(others), testing::KilledBySignal(SIGBUS), "");
    munmap(others, kSize);
}
#endif

}  // namespace
}  // namespace penstock::scan
