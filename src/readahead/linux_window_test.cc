// Goal: the window of Linux behaves as its source says, so that what we are compared with is not a
// straw man: the golden requests of known streams.
#include "readahead/linux_window_fixture.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace penstock::readahead {
namespace {

// A page cache of unlimited size where everything arrives at once.
class Pages : public LinuxPages {
public:
    explicit Pages(uint64_t file_pages) : window_(file_pages) {}

    void read(uint64_t first, uint64_t count) {
        for (uint64_t page = first; page < first + count; ++page) {
            const uint64_t left = first + count - page;
            if (!has(page)) window_.miss(*this, page, left);
            if (marks_.erase(page) > 0) window_.reached_mark(*this, page, left);
        }
        window_.read_ended(first + count);
    }
    [[nodiscard]] bool has(uint64_t page) const override { return there_.contains(page); }
    void submit(uint64_t page, uint64_t count, uint64_t mark) override {
        requests_.emplace_back(page, count);
        for (uint64_t at = page; at < page + count; ++at) {
            if (there_.insert(at).second && at == mark) marks_.insert(at);
        }
    }
    std::vector<std::pair<uint64_t, uint64_t>> take() { return std::exchange(requests_, {}); }

private:
    LinuxWindow window_;
    std::set<uint64_t> there_, marks_;
    std::vector<std::pair<uint64_t, uint64_t>> requests_;
};

using Requests = std::vector<std::pair<uint64_t, uint64_t>>;

TEST(LinuxWindow, PagesReadInOrderDoubleTheWindowTo32AndKeepItOneAhead) {
    Pages pages(1000);
    for (uint64_t page = 0; page < 61; ++page) pages.read(page, 1);
    EXPECT_EQ(pages.take(), (Requests{{0, 4}, {4, 8}, {12, 16}, {28, 32}, {60, 32}, {92, 32}}));
}

TEST(LinuxWindow, ALargeFirstReadTakesAWholeWindow) {
    Pages pages(1000);
    pages.read(0, 16);
    EXPECT_EQ(pages.take(), (Requests{{0, 32}}));
    pages.read(16, 16);
    EXPECT_EQ(pages.take(), (Requests{{32, 32}}));
}

TEST(LinuxWindow, StridesAndRandomReadsGetNoReadahead) {
    Pages pages(100'000);
    for (uint64_t i = 1; i < 50; ++i) pages.read(i * 64, 4);
    for (const auto& [page, count] : pages.take()) EXPECT_EQ(count, 4U) << page;
}

TEST(LinuxWindow, AStreamThatStartsInTheMiddleIsFoundAtItsSecondRead) {
    Pages pages(100'000);
    pages.read(5000, 1);
    EXPECT_EQ(pages.take(), (Requests{{5000, 1}}));
    pages.read(5001, 1);
    EXPECT_EQ(pages.take(), (Requests{{5001, 4}}));
}

TEST(LinuxWindow, AReadThatSkipsAPageIsTakenForASequentialOne) {
    Pages pages(100'000);
    pages.read(5000, 1);
    pages.take();
    pages.read(5002, 1);
    EXPECT_EQ(pages.take(), (Requests{{5002, 4}}));
    pages.read(9000, 1);
    pages.take();
    pages.read(9003, 1);
    EXPECT_EQ(pages.take(), (Requests{{9003, 1}}));
}

TEST(LinuxWindow, NothingBehindTheEndIsAskedFor) {
    Pages pages(37);
    for (uint64_t page = 0; page < 37; ++page) pages.read(page, 1);
    for (const auto& [page, count] : pages.take()) EXPECT_LE(page + count, 37U);
}

}  // namespace
}  // namespace penstock::readahead
