// Goal: a descriptor that the host closes while a block reads with it gives EBADF to the whole
// block. Once it did so to some lanes of a warp only, which then waited at different barriers.
#include "tests/closed_while_reading_test.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <thread>

#include "base/prng.h"
#include "penstock/file_system.h"
#include "storage/storage_fixture.h"

namespace penstock {
namespace {

TEST(ClosedWhileReading, AllLanesSeeTheSame) {
    constexpr int kRounds = 100;
    constexpr uint64_t kSize = 100;
    auto device = Device::open();
    ASSERT_TRUE(device.ok()) << device.status().message();
    FileSystemOptions options;
    options.cache_size = std::max<size_t>(16 << 20,
                                          size_t{device.value().permits()} * options.page_size);
    options.helping = false;
    auto fs = FileSystem::create(device.value(), options);
    ASSERT_TRUE(fs.ok()) << fs.status().message();
    auto stream = Stream::create(device.value());
    ASSERT_TRUE(stream.ok()) << stream.status().message();
    auto memory = device.value().allocate_pinned(4096);
    ASSERT_TRUE(memory.ok()) << memory.status().message();
    auto* last = static_cast<long long*>(memory.value());
    auto* buffer = static_cast<std::byte*>(memory.value()) + 64;
    const storage::ScratchFolder folder;
    folder.write("file", 0, storage::random_bytes(1, 10'000));
    base::Prng prng(1);
    for (int round = 0; round < kRounds; ++round) {
        auto file = fs.value().open(folder.path("file"));
        ASSERT_TRUE(file.ok()) << file.status().message();
        ASSERT_TRUE(launch(stream.value(), {1, 64}, read_until_closed, fs.value().device_handle(),
                           file.value(), kSize, buffer, last)
                        .ok());
        std::this_thread::sleep_for(std::chrono::microseconds(200 + prng.below(300)));
        ASSERT_TRUE(fs.value().close(file.value()).ok());
        const Status done = stream.value().synchronize(std::chrono::seconds(60));
        ASSERT_TRUE(done.ok()) << done.message() << device.value().diagnosis();
        ASSERT_EQ(*last, -EBADF) << "round " << round;
    }
    device.value().free(memory.value());
}

}  // namespace
}  // namespace penstock
