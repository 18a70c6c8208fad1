// Goal: files change, descriptors are closed under their readers and slots go to other files while
// kernels run. Whatever a call returns without an error is of the file that was opened, no older
// than its open, and of one state of that file within a page.
//
// Each 8 bytes of a file hold its number and the count of its changes, so that any bytes tell where
// they come from. Files are held in memory: there a change is one step to all readers.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "base/prng.h"
#include "system/machine.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

constexpr uint32_t kFiles = 8;
constexpr uint64_t kPage = 4096, kPages = 24, kSize = kPages * kPage - 8 * 100;

uint64_t word_of(uint32_t file, uint64_t change) { return uint64_t{file} << 40 | change; }

struct Way {
    const char* name;
    bool helping, remote;
};
void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

class RaceTest : public ::testing::TestWithParam<Way> {
protected:
    static std::string name(uint32_t file) { return "f" + std::to_string(file); }

    void SetUp() override {
        if (on_gpu() && !GetParam().remote) GTEST_SKIP() << "a GPU always is remote";
        machine_ = std::make_unique<Machine>(Shape{.permits = 4,
                                                   .frames = 8,
                                                   .helping = GetParam().helping,
                                                   .workers = 3,
                                                   .warps = !GetParam().helping,
                                                   .lanes = 32,
                                                   .storage = storage::Kind::kRam,
                                                   .remote = GetParam().remote});
        ASSERT_TRUE(machine_->ok());
        words_ = std::make_unique<Scratch>(machine_->device(), 4096);
        notes_ = words_->array<uint64_t>(kFiles);
        lent_ = words_->array<uint64_t>(kFiles);
        for (uint32_t file = 0; file < kFiles; ++file) {
            ASSERT_TRUE(machine_->ram().create(name(file), 0).ok());
            change(file);
        }
    }

    // Writes every word of the file anew, in place; or a new file under its name.
    void change(uint32_t file, bool replace = false) {
        const uint64_t number = notes_[file] + 1;
        const std::vector<uint64_t> words(kSize / 8, word_of(file, number));
        const auto bytes = std::as_bytes(std::span(words));
        if (replace) {
            ASSERT_TRUE(machine_->ram().unlink(name(file)).ok());
            ASSERT_TRUE(machine_->ram().create(name(file), 0).ok());
        }
        ASSERT_TRUE(machine_->ram().write(name(file), 0, bytes).ok());
        __atomic_store_n(&notes_[file], number, __ATOMIC_RELEASE);
    }

    // A block's life: opens files, lends them to the others, reads its own and borrowed ones.
    std::vector<Step> random_steps(base::Prng& prng) {
        std::vector<Step> steps;
        Scratch& scratch = machine_->scratch();
        const auto word = [&](Act act, uint32_t file, uint64_t* at) {
            steps.push_back({.act = act, .file = file, .out = reinterpret_cast<std::byte*>(at)});
        };
        const auto read = [&](uint32_t index) {
            const uint64_t offset = prng.below(kSize / 8) * 8,
                           size = 8 + prng.below(12 * kPage / 8) * 8;
            auto* out = reinterpret_cast<std::byte*>(scratch.array<uint64_t>(size / 8));
            steps.push_back(read_step(index, static_cast<int64_t>(offset), size, out));
        };
        for (int round = 0; round < 12; ++round) {
            const auto file = static_cast<uint32_t>(prng.below(kFiles));
            const auto other = static_cast<uint32_t>(prng.below(kFiles));
            word(Act::kNote, file, &notes_[file]);
            steps.push_back(open_step(file, scratch.text(name(file))));
            if (prng.below(2) == 0) word(Act::kShare, file, &lent_[file]);
            read(file);
            if (other != file) {
                word(Act::kBorrow, other, &lent_[other]);
                read(other);
            }
            if (prng.below(2) == 0) read(file);
            if (prng.below(3) == 0) {
                auto* out = reinterpret_cast<std::byte*>(scratch.array<uint64_t>(kPage / 8));
                steps.push_back(
                    map_step(file, 0, static_cast<int64_t>(prng.below(kSize / 8) * 8), kPage, out));
                steps.push_back(unmap_step(0));
            }
            steps.push_back(close_step(file));
            if (prng.below(3) == 0) read(file);  // closed, unless another block has it open
        }
        return steps;
    }

    // What is wrong with the bytes of one call; empty: nothing.
    static std::string check(const Step& step, uint64_t note) {
        if (step.result == 0) return {};  // opened when it was there again, but still empty
        const uint64_t wanted = std::min(step.size, kSize - static_cast<uint64_t>(step.offset));
        const auto count = static_cast<uint64_t>(step.result);
        if (step.act == Act::kRead ? count != wanted : count > wanted)
            return "result " + std::to_string(step.result);
        const auto* words = reinterpret_cast<const uint64_t*>(step.out);
        for (uint64_t i = 0; i < count / 8; ++i) {
            const uint64_t change = words[i] & ((uint64_t{1} << 40) - 1);
            if (words[i] >> 40 != step.file)
                return "bytes of file " + std::to_string(words[i] >> 40);
            if (change < note)
                return "bytes of change " + std::to_string(change) + ", the open was after " +
                       std::to_string(note);
            const bool same_page = i > 0 &&
                                   (static_cast<uint64_t>(step.offset) + 8 * i) % kPage != 0;
            if (same_page && words[i] != words[i - 1]) return "two changes in one page";
        }
        return {};
    }

    static void check_block(const BlockSteps& block) {
        uint64_t notes[kFiles] = {};
        bool own[kFiles] = {};
        for (uint64_t i = 0; i < block.count; ++i) {
            const Step& step = block.steps[i];
            ASSERT_EQ(step.disagreements, 0u);
            switch (step.act) {
                case Act::kNote:
                    notes[step.file] = static_cast<uint64_t>(step.result);
                    break;
                case Act::kOpen:
                    // The name may be gone for a moment while the file is replaced.
                    ASSERT_TRUE(step.result >= 0 || step.result == -ENOENT);
                    own[step.file] = step.result >= 0;
                    break;
                case Act::kBorrow:
                    own[step.file] = false;
                    break;
                case Act::kClose:
                    ASSERT_EQ(step.result, own[step.file] ? 0 : -EBADF);
                    own[step.file] = false;
                    break;
                case Act::kRead:
                case Act::kMap: {
                    if (step.result == -EBADF && !own[step.file]) break;
                    // More blocks than permits of the shape, as on a GPU, map at once.
                    if (step.result == -ENOMEM && step.act == Act::kMap && on_gpu()) break;
                    // A borrowed number may since stand for an open of any earlier time.
                    const std::string wrong = check(step, own[step.file] ? notes[step.file] : 1);
                    ASSERT_EQ(wrong, "") << "step " << i << ", file " << step.file << " at "
                                         << step.offset << ", size " << step.size;
                    break;
                }
                default:
                    break;
            }
        }
    }

    std::unique_ptr<Machine> machine_;
    std::unique_ptr<Scratch> words_;  // the two below
    uint64_t* notes_ = nullptr;       // for each file, changes that are over
    uint64_t* lent_ = nullptr;        // for each file, a descriptor that somebody has or had open
};

INSTANTIATE_TEST_SUITE_P(By, RaceTest,
                         ::testing::Values(Way{"helping_blocks", true, false},
                                           Way{"workers", false, false},
                                           Way{"workers_of_a_remote_device", false, true}),
                         [](const auto& made) { return std::string(made.param.name); });

TEST_P(RaceTest, BytesAreOfTheFileThatWasOpened) {
    // Under ThreadSanitizer they take seconds each.
    const uint64_t launches = testing::effort(30, 2, testing::usually(600, 100));
    base::Prng prng(3 + GetParam().helping);
    std::atomic<bool> over{false};
    std::thread changer([&] {
        base::Prng choices(5);
        while (!over) {
            change(static_cast<uint32_t>(choices.below(kFiles)), choices.below(3) == 0);
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
    for (uint64_t launch = 0; launch < launches && !HasFailure(); ++launch) {
        machine_->scratch().clear();
        // Each open of a changed file takes a slot, 120 a launch at most, and under kernels none
        // of them can be had again.
        if (launch % 30 == 29 && !machine_->drops_under_kernels()) machine_->renew();
        std::vector<std::vector<Step>> blocks(10);
        for (auto& steps : blocks) steps = random_steps(prng);
        BlockSteps* written = machine_->write_down(blocks);
        EXPECT_TRUE(machine_->start(machine_->stream(), written, blocks.size()).ok());
        const Status status = machine_->stream().synchronize(std::chrono::seconds(60));
        EXPECT_TRUE(status.ok()) << status.message() << machine_->device().diagnosis();
        if (!status.ok()) break;
        for (size_t b = 0; b < blocks.size(); ++b) {
            SCOPED_TRACE("launch " + std::to_string(launch) + ", block " + std::to_string(b));
            check_block(written[b]);
        }
        EXPECT_EQ(machine_->fs().statistics().open_descriptors, 0u);
        EXPECT_EQ(machine_->broken_invariant(), 0);
    }
    over = true;
    changer.join();
}

}  // namespace
}  // namespace penstock::system_test
