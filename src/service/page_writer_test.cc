// Goal: dirty pages of a device that the host cannot address reach their file, those granules and
// no others, with few copies: the copy engine pauses behind each.
#include "service/page_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "base/prng.h"
#include "page_cache/page_cache_fixture.h"
#include "service/slow_device_fixture.h"
#include "storage/ram.h"
#include "testing/bytes.h"

namespace penstock::service {
namespace {

constexpr uint64_t kPage = 4096, kPages = 4096, kCount = limits::kDrainMax;
constexpr uint64_t kGranule = limits::kGranuleSize;

class PageWriterTest : public ::testing::Test {
protected:
    PageWriterTest() {
        device_.prompt = true;
        EXPECT_TRUE(storage_->create("file", kPages * kPage).ok());
        EXPECT_TRUE(storage_->write("file", 0, bytes_).ok());
        testing::fill_randomly(memory_.state().frames, kPages * kPage, 5);
        auto executor = transfer::Executor::create(*storage_, nullptr, {});
        EXPECT_TRUE(executor.ok());
        executor_ = std::move(executor.value());
        file_ = files_.open("file", kOpenReadWrite, Opener::kHost).value();
        writer_ = std::move(
            PageWriter::create(device_, memory_.state(), files_, *executor_).value());
    }
    // One granule of each page is written back: returns how many copies that took.
    uint64_t write_back(const std::vector<PageIndex>& pages,
                        const std::vector<FrameIndex>& frames) {
        FileSystemState& state = memory_.state();
        std::vector<Request> requests;
        for (size_t i = 0; i < pages.size(); ++i) {
            state.snapshots[frames[i]] = uint64_t{1} << i % 64;
            Request request;
            request.kind = RequestKind::kWritePage;
            request.file_slot = descriptor_slot(file_);
            request.page = pages[i];
            request.frame = frames[i];
            request.generation = 7;
            request.size = kPage;
            requests.push_back(request);
            const uint64_t at = i % 64 * kGranule;
            std::copy_n(state.frames + frames[i] * kPage + at, kGranule,
                        bytes_.begin() + static_cast<int64_t>(pages[i] * kPage + at));
        }
        PageWriter::Done done;
        device_.copy_sizes.clear();
        EXPECT_TRUE(writer_
                        ->write(
                            requests, [](const transfer::Outcome&) {}, &done)
                        .ok());
        EXPECT_EQ(done.bytes, pages.size() * kGranule);
        EXPECT_EQ(done.failed_pages, 0u);
        for (const FrameIndex frame : frames)
            EXPECT_EQ(state.write_completions[frame], make_completion(7, 0, kPage)) << frame;
        std::vector<std::byte> now(bytes_.size());
        const auto file = storage_->open("file", O_RDONLY).value();
        const auto queue = std::move(storage_->make_queue(1).value());
        const iovec piece{now.data(), now.size()};
        EXPECT_EQ(queue->submit_and_reap({file.get(), 0, {&piece, 1}}).bytes, now.size());
        EXPECT_TRUE(now == bytes_);
        return device_.copy_sizes.size();
    }

    std::vector<std::byte> bytes_ = testing::random_bytes(3, kPages* kPage);
    SlowDevice device_;
    page_cache::Memory memory_{{.frames = kPages, .teams = 64}};
    std::shared_ptr<storage::RamStorage> storage_ = std::make_shared<storage::RamStorage>();
    FileTable files_{storage_, &device_, 0, &memory_.state(), memory_.state().files, nullptr};
    std::unique_ptr<transfer::Executor> executor_;
    Descriptor file_ = -1;
    std::unique_ptr<PageWriter> writer_;
};

TEST_F(PageWriterTest, NeighboursInTheFileAndInTheCacheTakeThreeCopies) {
    std::vector<PageIndex> pages(kCount);
    std::vector<FrameIndex> frames(kCount);
    std::iota(pages.begin(), pages.end(), 100);
    std::iota(frames.begin(), frames.end(), 900);
    EXPECT_EQ(write_back(pages, frames), 3u);
}

TEST_F(PageWriterTest, SnapshotsOfScatteredPagesComeInOneCopy) {
    base::Prng prng(17);
    for (int round = 0; round < 5; ++round) {
        std::vector<PageIndex> pages(kPages);
        std::vector<FrameIndex> frames(kPages);
        std::iota(pages.begin(), pages.end(), 0);
        std::iota(frames.begin(), frames.end(), 0);
        for (size_t i = 0; i < kCount; ++i) {
            std::swap(pages[i], pages[i + prng.below(kPages - i)]);
            std::swap(frames[i], frames[i + prng.below(kPages - i)]);
        }
        pages.resize(kCount);
        frames.resize(kCount);
        std::sort(pages.begin(), pages.end());
        EXPECT_LE(write_back(pages, frames), 2 * kCount + 1);
    }
}

}  // namespace
}  // namespace penstock::service
