// Goal: whatever a program asks of readahead, and whatever becomes of a file while windows of it
// are on their way, reads bring the file's bytes and each error reaches only who reads the page it
// struck.
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <vector>

#include "system/readahead_fixture.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

TEST(PrefetchSizeTest, IsRefusedUnlessItFits) {
    const Device device = Device::open("cpu:2", {.memory_size = 64 << 20}).value();
    const auto create = [&](uint32_t page_size, uint64_t frames, uint64_t size) {
        FileSystemOptions options;
        options.page_size = page_size;
        options.cache_size = frames * page_size;
        options.readahead = Readahead::kStatic;
        options.prefetch_size = size;
        return FileSystem::create(device, options).status();
    };
    for (const uint64_t size : {uint64_t{1}, uint64_t{4095}, uint64_t{6000}, 64 * kPage, 65 * kPage,
                                UINT64_MAX, UINT64_MAX - kPage + 1}) {
        const Status status = create(4096, 2048, size);
        EXPECT_EQ(status.error_number(), EINVAL) << size;
        EXPECT_STREQ(status.origin(), "prefetch size") << size;
    }
    EXPECT_EQ(create(65536, 64, 60 << 10).error_number(), EINVAL) << "no multiple of the page";
    EXPECT_EQ(create(4096, 40, 10 * kPage).error_number(), EINVAL)
        << "a quarter is 10 pages, one of which is missed";
    for (const uint64_t pages : {1, 9}) EXPECT_TRUE(create(4096, 40, pages * kPage).ok());
    EXPECT_TRUE(create(4096, 256, 63 * kPage).ok());
    EXPECT_EQ(create(4096, 255, 63 * kPage).error_number(), EINVAL);
    for (const uint32_t page_size : {4096, 8192, 65536, 1 << 20, 2 << 20})
        EXPECT_TRUE(create(page_size, (16 << 20) / page_size, 0).ok()) << page_size;
    EXPECT_EQ(create(4096, 60, 0).error_number(), EINVAL) << "60 KiB and a page";
    EXPECT_EQ(create(0, 60, 0).error_number(), EINVAL);
    FileSystemOptions other;  // of no concern where windows have no fixed size
    other.cache_size = 4 << 20;
    other.prefetch_size = 1;
    EXPECT_TRUE(FileSystem::create(device, other).ok());
}

// Caches of fewer frames than any window has pages, down to one for each permit.
class TinyCacheTest : public ::testing::TestWithParam<Replacement> {};

constexpr bool kAllSizes = !testing::kThreadSanitizer;  // half a minute a policy

TEST_P(TinyCacheTest, EveryWalkArrives) {
    const Walk walks[] = {{0, kSignedPage, kPage, 60},
                          {100, 3 * kSignedPage, 3 * kPage, 12},
                          {59 * kSignedPage, -kSignedPage, kPage, 60},
                          {40 * kSignedPage + 7, -2 * kSignedPage, 3 * kPage, 15},
                          {0, 4 * kSignedPage, kPage, 15},
                          {0, kSignedPage, 5 * kPage, 20},
                          {0, 0, 64 * kPage, 2}};
    for (const unsigned permits : {1, 2}) {
        for (uint64_t frames = permits; frames <= 20; frames += frames < 9 ? 1 : 4) {
            if ((on_gpu() || !kAllSizes) && frames != 8) continue;
            for (const Readahead readahead : {Readahead::kAuto, Readahead::kStatic}) {
                if (readahead == Readahead::kStatic && frames < 8) continue;  // refused
                for (const bool helping : {true, false}) {
                    Machine machine({.permits = permits,
                                     .frames = frames,
                                     .helping = helping,
                                     .readahead = readahead,
                                     .replacement = GetParam(),
                                     .lanes = 4},
                                    8 << 20);
                    ASSERT_TRUE(machine.ok());
                    machine.create_file("f", 60 * kPage + 77, frames);
                    const Descriptor file = machine.fs().open(machine.files().path("f")).value();
                    Blocks blocks(3);
                    for (size_t b = 0; b < blocks.size(); ++b) {
                        blocks[b] = {set_step(0, file)};
                        for (size_t w = 0; w < std::size(walks); ++w) {
                            const Advice advices[] = {Advice::kSequential, Advice::kNoReuse,
                                                      Advice::kNormal};
                            blocks[b].push_back(advise_step(0, advices[(b + w) % 3]));
                            blocks[b].push_back(advise_step(0, Advice::kWillNeed));
                            add_walk(machine, blocks[b], walks[(b + w) % std::size(walks)]);
                        }
                    }
                    SCOPED_TRACE(describe(machine.shape()));
                    run_well(machine, blocks);
                    if (HasFailure()) return;
                }
            }
        }
    }
}

std::string name_of(Replacement policy) {
    const char* const names[] = {"rings", "global_lra", "clock"};
    return names[static_cast<int>(policy)];
}

INSTANTIATE_TEST_SUITE_P(Policies, TinyCacheTest,
                         ::testing::Values(Replacement::kRings, Replacement::kGlobalLra,
                                           Replacement::kClock),
                         [](const auto& made) { return name_of(made.param); });

TEST_P(BadReadaheadTest, AdviceThatContradictsItself) {
    std::vector<Step> steps = {set_step(0, open("f"))};
    const Advice advices[] = {Advice::kRandom,     Advice::kSequential, Advice::kNoReuse,
                              Advice::kStrided,    Advice::kNormal,     Advice::kSequential,
                              Advice::kDontNeed,   Advice::kStrided,    Advice::kRandom,
                              Advice::kSequential, Advice::kWillNeed,   Advice::kNormal};
    const int64_t strides[] = {5 * kSignedPage,  -3 * kSignedPage, 1, -1,
                               kAdviceStrideMax, -kAdviceStrideMax};
    size_t next = 0;
    for (int64_t at = 0; at < 180; at += 6) {
        for (int i = 0; i < 2; ++i, ++next) {
            const Advice advice = advices[next % std::size(advices)];
            const bool strided = advice == Advice::kStrided;
            steps.push_back(
                advise_step(0, advice, strided ? strides[next % std::size(strides)] : 0, kPage));
        }
        add_walk(*machine_, steps, {at * kSignedPage, kSignedPage, kPage, 7});
        add_walk(*machine_, steps, {(190 - at) * kSignedPage, -2 * kSignedPage, kPage, 5});
    }
    run(steps);
    for (const Step& step : steps_) {
        if (step.act != Act::kAdvise) continue;
        EXPECT_EQ(step.result, 0) << step.flags;
    }
}

TEST_P(BadReadaheadTest, TheLastAdviceCountsForTheNextRead) {
    // Reads that led nowhere; then what is said makes the first read one of a stream.
    std::vector<Step> steps = {set_step(0, open("f"))};
    for (const int64_t page : {100, 50, 140, 20, 170})
        add_walk(*machine_, steps, {page * kSignedPage, 0, kPage, 1});
    run(steps);
    const uint64_t before = prefetched();
    steps = {steps[0], advise_step(0, Advice::kRandom), advise_step(0, Advice::kSequential)};
    add_walk(*machine_, steps, {60 * kSignedPage, 0, kPage, 1});
    run(steps);
    // More than the first window of reads that nothing was said of; how much depends on the slabs
    // of frames, which are small where many blocks can be resident.
    EXPECT_GE(prefetched() - before, GetParam().readahead == Readahead::kAuto ? 16u : 1u);
}

TEST_P(BadReadaheadTest, StridesThatLeadNowhere) {
    std::vector<Step> steps = {set_step(0, open("f"))};
    for (const int64_t stride :
         {int64_t{0}, INT64_MIN, INT64_MAX, kAdviceStrideMax + 1, -kAdviceStrideMax - 1})
        steps.push_back(advise_step(0, Advice::kStrided, stride, kPage));
    run(steps);
    for (size_t i = 1; i < steps_.size(); ++i) EXPECT_EQ(steps_[i].result, -EINVAL) << i;
    // Good strides, but away from the file, into its start, or by parts of a page.
    for (const int64_t stride : {kAdviceStrideMax, -kAdviceStrideMax, 300 * kSignedPage,
                                 -300 * kSignedPage, kSignedPage + 1, int64_t{-1}}) {
        steps = {steps[0], advise_step(0, Advice::kStrided, stride, 1)};
        add_walk(*machine_, steps, {150 * kSignedPage, 0, 2 * kPage, 1});
        add_walk(*machine_, steps, {0, 7 * kSignedPage, 3 * kPage, 20});
        add_walk(*machine_, steps, {90 * kSignedPage, -kSignedPage, kPage, 30});
        run(steps);
        EXPECT_EQ(steps_[1].result, 0) << stride;
    }
}

TEST_P(BadReadaheadTest, NeedBeyondTheEnd) {
    const auto size = static_cast<int64_t>(kFilePages * kPage + 500);
    std::vector<Step> steps = {set_step(0, open("f")),
                               advise_step(0, Advice::kWillNeed, size, 100),
                               advise_step(0, Advice::kWillNeed, INT64_MAX, UINT64_MAX),
                               advise_step(0, Advice::kWillNeed, int64_t{1} << 50, 1),
                               advise_step(0, Advice::kDontNeed, INT64_MAX, UINT64_MAX),
                               advise_step(0, Advice::kWillNeed, size - 1, UINT64_MAX),
                               advise_step(0, Advice::kWillNeed, 10, UINT64_MAX),
                               advise_step(0, Advice::kDontNeed, 10, UINT64_MAX)};
    add_walk(*machine_, steps, {0, 5 * kSignedPage, 5 * kPage, 41});
    run(steps);
    for (size_t i = 1; i < 8; ++i) EXPECT_EQ(steps_[i].result, 0) << i;
}

TEST_P(BadReadaheadTest, AdviceOnAClosedFile) {
    const char* path = machine_->scratch().text(machine_->files().path("f"));
    std::vector<Step> steps = {open_step(0, path)};
    add_walk(*machine_, steps, {0, kSignedPage, kPage, 12});
    steps.push_back(close_step(0));
    const size_t first = steps.size();
    for (int advice = 0; advice <= static_cast<int>(Advice::kStrided); ++advice)
        steps.push_back(advise_step(0, static_cast<Advice>(advice), kSignedPage, kPage));
    const size_t last = steps.size();
    // It is open again, and what was said of the old descriptor is not for the new one.
    steps.push_back(open_step(0, path));
    add_walk(*machine_, steps, {12 * kSignedPage, kSignedPage, kPage, 30});
    steps.push_back(close_step(0));
    run(steps);
    for (size_t i = first; i < last; ++i) EXPECT_EQ(steps_[i].result, -EBADF) << i - first;
}

// Slots go to other files while windows of the old ones lie at the block's place, or are on their
// way.
TEST_P(BadReadaheadTest, FilesAreClosedAndReplacedUnderTheirWindows) {
    for (uint64_t round = 0; round < testing::usually(12, 4); ++round) {
        machine_->scratch().clear();
        const char* path = machine_->scratch().text(machine_->files().path("f"));
        Blocks blocks(2);
        for (auto& steps : blocks) {
            for (int64_t i = 0; i < 4; ++i) {
                steps.push_back(open_step(0, path));
                steps.push_back(advise_step(0, i == 1 ? Advice::kSequential : Advice::kNormal));
                add_walk(*machine_, steps, {i * 9 * kSignedPage, kSignedPage, kPage, 6});
                add_walk(*machine_, steps,
                         {(i * 9 + 60) * kSignedPage, -2 * kSignedPage, kPage, 6});
                steps.push_back(close_step(0));
            }
        }
        run_well(*machine_, blocks);
        if (HasFailure()) return;
        // The next file has its name and its slot.
        ASSERT_TRUE(
            machine_->files().write("f", 0, storage::random_bytes(round + 50, 150 * kPage)));
    }
}

testing::Fault bad_byte(int64_t page) {
    return {.action = Action::kBad,
            .count = UINT64_MAX,
            .error = EIO,
            .offset = static_cast<uint64_t>(page) * kPage + 17};
}

// Every read brought what the file has there, but those of the bad page. `bad`: the last of them.
void expect_struck(Machine& machine, const std::vector<Step>& steps, int64_t bad_page, Step* bad) {
    const testing::ReferenceFile& file = machine.files().file("f");
    for (const Step& step : steps) {
        if (step.act != Act::kRead) continue;
        const bool struck = step.offset <= bad_page * kSignedPage &&
                            step.offset + static_cast<int64_t>(step.size) > bad_page * kSignedPage;
        if (struck) *bad = step;
        ASSERT_EQ(step.result, struck ? -EIO : static_cast<int64_t>(step.size))
            << "page " << step.offset / kSignedPage;
        if (struck) continue;
        ASSERT_EQ(file.mismatch(static_cast<uint64_t>(step.offset), {step.out, step.size}),
                  step.size);
    }
}

TEST_P(BadReadaheadTest, AnErrorInAWindowReachesOnlyWhoReadsThePage) {
    constexpr int64_t kBadPage = 123;
    const Walk walks[] = {{90 * kSignedPage, kSignedPage, kPage, 100},
                          {180 * kSignedPage, -kSignedPage, kPage, 100},
                          {(kBadPage - 60) * kSignedPage, 3 * kSignedPage, kPage, 40},
                          {(kBadPage - 30) * kSignedPage, 3 * kSignedPage, 3 * kPage, 20}};
    for (const Walk& walk : walks) {
        machine_->renew();
        machine_->scratch().clear();
        machine_->faults().inject(bad_byte(kBadPage));
        std::vector<Step> steps = {set_step(0, open("f"))};
        add_walk(*machine_, steps, walk);
        SCOPED_TRACE(walk.step);
        Blocks blocks = {steps};
        const Status status = machine_->run(&blocks, std::chrono::seconds(30));
        ASSERT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
        EXPECT_GT(prefetched(), 30u) << "or the test shows nothing";
        Step bad{};
        expect_struck(*machine_, blocks[0], kBadPage, &bad);
        ASSERT_EQ(bad.act, Act::kRead);
        EXPECT_EQ(machine_->broken_invariant(), 0);
        // The page is read well once it can be read.
        machine_->faults().clear();
        run({steps[0], bad, bad});
    }
}

// What is asked for by advice is everybody's from the start.
TEST_P(BadReadaheadTest, AnErrorInWhatIsNeededReachesOnlyWhoReadsThePage) {
    constexpr int64_t kBadPage = 123, kFirst = 118, kCount = 12;
    machine_->faults().inject(bad_byte(kBadPage));
    const Descriptor file = open("f");
    run({set_step(0, file), advise_step(0, Advice::kRandom),
         advise_step(0, Advice::kWillNeed, kFirst * kSignedPage, kCount * kPage)});
    EXPECT_EQ(steps_.back().result, 0) << "advice tells of no error";
    ASSERT_TRUE(machine_->service().serve_all(std::chrono::seconds(30)).ok());
    EXPECT_EQ(machine_->fs().file_statistics(file).value().advised, uint64_t{kCount});
    EXPECT_EQ(machine_->fs().statistics().failed_pages, 1u) << "its neighbours arrived";
    Blocks blocks(2, {set_step(0, file)});
    for (std::vector<Step>& steps : blocks)
        add_walk(*machine_, steps, {(kFirst - 3) * kSignedPage, kSignedPage, kPage, kCount + 6});
    const Status status = machine_->run(&blocks, std::chrono::seconds(30));
    ASSERT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
    Step bad{};
    for (const auto& steps : blocks) expect_struck(*machine_, steps, kBadPage, &bad);
    ASSERT_EQ(bad.act, Act::kRead);
    EXPECT_EQ(machine_->broken_invariant(), 0);
    machine_->faults().clear();
    run({set_step(0, file), bad, bad});
}

// So is what is asked for ahead of a launch, as the last one had to wait for it.
TEST_P(BadReadaheadTest, AnErrorInWhatWasLearnedReachesOnlyWhoReadsThePage) {
    if (GetParam().readahead != Readahead::kAuto) GTEST_SKIP() << "nothing is learned";
    constexpr int64_t kBlocks = 10, kBadPage = 74;  // the second that block 4 reads
    const Descriptor file = open("f");
    // Without windows, which are not learned.
    Blocks plan(kBlocks, {set_step(0, file), advise_step(0, Advice::kRandom)});
    for (int64_t b = 0; b < kBlocks; ++b) {
        for (const int64_t page : {0, 70, 140, 20, 90, 160})
            add_walk(*machine_, plan[b], {(b + page) * kSignedPage, 0, kPage, 1});
    }
    Blocks blocks = plan;
    run_well(*machine_, blocks);
    ASSERT_TRUE(
        launch(machine_->stream(), {{4}, {32}}, forget_file, machine_->fs().device_handle(), file)
            .ok());
    ASSERT_TRUE(machine_->wait().ok());
    machine_->faults().inject(bad_byte(kBadPage));
    blocks = plan;
    const Status status = machine_->run(&blocks, std::chrono::seconds(30));
    ASSERT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
    EXPECT_EQ(machine_->fs().file_statistics(file).value().learned, uint64_t{kBlocks} * 6);
    // Ahead of the launch; once more if the block came when that was over.
    EXPECT_LE(machine_->fs().statistics().failed_pages, 2u) << "its neighbours arrived";
    Step bad{};
    for (const auto& steps : blocks) expect_struck(*machine_, steps, kBadPage, &bad);
    ASSERT_EQ(bad.act, Act::kRead);
    EXPECT_EQ(machine_->broken_invariant(), 0);
    machine_->faults().clear();
    run({set_step(0, file), bad, bad});
}

// Two blocks have windows over the bad page; one stops before it, and hears nothing of it.
TEST_P(BadReadaheadTest, AnErrorInAWindowOfWhoStopsBeforeItReachesNobody) {
    constexpr int64_t kBadPage = 123, kFirst = 60;
    machine_->faults().inject(bad_byte(kBadPage));
    Blocks blocks(2);
    for (std::vector<Step>& steps : blocks)
        steps = {set_step(0, open("f")), advise_step(0, Advice::kSequential)};
    add_walk(*machine_, blocks[0], {kFirst * kSignedPage, kSignedPage, kPage, kBadPage - kFirst});
    add_walk(*machine_, blocks[1], {kFirst * kSignedPage, kSignedPage, kPage, 100});
    const Status status = machine_->run(&blocks, std::chrono::seconds(30));
    ASSERT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
    EXPECT_GT(prefetched(), 30u) << "or the test shows nothing";
    const auto bad = std::ranges::find_if(blocks[1], [](const Step& step) {
        return step.act == Act::kRead && step.offset == kBadPage * kSignedPage;
    });
    EXPECT_EQ(bad->result, -EIO);
    blocks[1].erase(bad);
    for (const auto& steps : blocks) expect_bytes(*machine_, steps);
    EXPECT_EQ(machine_->broken_invariant(), 0);
}

// A window of which nothing came: its pages are read again, each alone, so all that are asked for
// arrive. Where the operation was of a single page, that page fails, once.
TEST_P(BadReadaheadTest, AWindowThatFailsAsAWholeCostsAtMostAPage) {
    for (uint64_t n = 1; n <= 12; n += testing::usually(1, 4)) {
        machine_->renew();
        machine_->scratch().clear();
        machine_->faults().inject({.call = Call::kRead, .first = n, .error = EIO});
        std::vector<Step> steps = {set_step(0, open("f")), advise_step(0, Advice::kSequential)};
        add_walk(*machine_, steps, {0, kSignedPage, kPage, kFilePages + 1});
        Blocks blocks = {steps};
        const Status status = machine_->run(&blocks, std::chrono::seconds(30));
        ASSERT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
        EXPECT_GT(prefetched(), 30u) << "or the test shows nothing";
        const auto failed = [](const Step& step) { return step.result == -EIO; };
        EXPECT_LE(std::erase_if(blocks[0], failed), 1u) << "operation " << n;
        expect_bytes(*machine_, blocks[0]);
        EXPECT_EQ(machine_->broken_invariant(), 0);
        run(steps);
        if (HasFailure()) return;
    }
}

INSTANTIATE_TEST_SUITE_P(Ways, BadReadaheadTest, kWays, name_of_way);

}  // namespace
}  // namespace penstock::system_test
