// Goal: whatever blocks do with files, through whatever cache and storage, every result and every
// byte is that of a flat byte array; and what is changed between launches is seen by who opens
// afterwards.
//
// 10,000 calls (3,000 under ThreadSanitizer); a million with PENSTOCK_NIGHTLY=1. A failure prints
// the seed of its program, which PENSTOCK_SEED replays alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>

#include "system/machine.h"
#include "system/random_program.h"
#include "testing/effort.h"

namespace penstock::system_test {
namespace {

constexpr uint64_t kCallsPerProgram = 170;
// Longer than any launch takes on a loaded machine under a sanitizer.
constexpr std::chrono::seconds kPatience{60};

uint64_t number_from(const char* variable, uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

// Blocks that read a file of twice the cache, from its start to its end, beside a program: whatever
// else is read there is evicted again and again. For caches that the programs' own files do not
// fill.
class Sweep {
public:
    // `name`: of the file, which is not there yet.
    Sweep(Machine& machine, std::string name)
        : machine_(machine),
          name_(std::move(name)),
          outputs_(machine.device(), kBlocks * (read_size() + (64 << 10))) {}

    void start() {
        auto stream = Stream::create(machine_.device());
        ASSERT_TRUE(stream.ok()) << stream.status().message();
        stream_ = std::move(stream.value());
        const uint64_t size = 2 * machine_.frame_count() * machine_.shape().page_size;
        ASSERT_TRUE(machine_.files().create(name_) && machine_.files().resize(name_, size));
        for (uint64_t at = 0; at < size; at += 64 << 10) {
            ASSERT_TRUE(machine_.files().write(name_, at, storage::random_bytes(at + 1, 5000)));
        }
        auto file = machine_.fs().open(machine_.files().path(name_));
        ASSERT_TRUE(file.ok()) << file.status().message();
        file_ = file.value();
        steps_ = outputs_.array<BlockSteps>(kBlocks);
        const uint64_t share = size / kBlocks / read_size() + 1;
        for (uint64_t b = 0; b < kBlocks; ++b) {
            auto* out = outputs_.array<std::byte>(read_size());
            steps_[b].steps = outputs_.array<Step>(share + 1);
            steps_[b].steps[0] = set_step(0, file_);
            steps_[b].count = share + 1;
            for (uint64_t i = 0; i < share; ++i) {
                const auto offset = static_cast<int64_t>((b + i * kBlocks) * read_size());
                steps_[b].steps[i + 1] = read_step(0, offset, read_size(), out);
            }
        }
        const Status status = machine_.start(stream_, steps_, kBlocks);
        ASSERT_TRUE(status.ok()) << status.message();
    }

    // Waits; a block's output holds the last of its reads that had bytes.
    void check() {
        ASSERT_NE(steps_, nullptr);
        const Status status = stream_.synchronize(kPatience);
        ASSERT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        const testing::ReferenceFile& file = machine_.files().file(name_);
        for (uint64_t b = 0; b < kBlocks; ++b) {
            ASSERT_EQ(steps_[b].done, steps_[b].count);
            const Step* last = nullptr;
            for (uint64_t i = 1; i < steps_[b].count; ++i) {
                const Step& step = steps_[b].steps[i];
                const auto offset = static_cast<uint64_t>(step.offset);
                const uint64_t count = file.count(offset, step.size);
                ASSERT_EQ(step.result, static_cast<int64_t>(count)) << "sweep at " << offset;
                if (count > 0) last = &step;
            }
            if (last == nullptr) continue;
            const auto count = static_cast<uint64_t>(last->result);
            ASSERT_EQ(file.mismatch(static_cast<uint64_t>(last->offset), {last->out, count}), count)
                << "sweep at " << last->offset;
        }
        EXPECT_TRUE(machine_.fs().close(file_).ok());
    }

private:
    static constexpr uint64_t kBlocks = 64;
    [[nodiscard]] uint64_t read_size() const { return 16 * machine_.shape().page_size; }

    Machine& machine_;
    const std::string name_;
    Scratch outputs_;
    BlockSteps* steps_ = nullptr;
    Descriptor file_ = -1;
    Stream stream_;
};

// One program in its life: launches, and changes of the files between them.
class Life {
public:
    explicit Life(uint64_t seed)
        : prng_(seed), shape_(random_shape(prng_)), machine_(shape_, 24 << 20) {}

    // Returns how many calls were made; 0: it has failed.
    uint64_t run() {
        SCOPED_TRACE(describe(shape_));
        if (!machine_.ok()) return 0;
        auto second = Stream::create(machine_.device());
        names_ = make_files(machine_, prng_);
        uint64_t calls = 0;
        for (int launch = 0; launch < 3 && !::testing::Test::HasFailure(); ++launch) {
            open_some();
            calls += run_programs(second.value());
            for (const Descriptor descriptor : given_)
                EXPECT_TRUE(machine_.fs().close(descriptor).ok());
            const uint64_t changes = prng_.below(4);
            for (uint64_t i = 0; i < changes; ++i)
                change_file(machine_, names_[prng_.below(names_.size())], prng_);
        }
        EXPECT_EQ(machine_.fs().statistics().open_descriptors, 0u);
        return ::testing::Test::HasFailure() ? 0 : calls;
    }

private:
    void open_some() {
        given_.clear();
        given_names_.clear();
        for (uint64_t i = prng_.below(4); i > 0; --i) {
            given_names_.push_back(names_[prng_.below(names_.size())]);
            auto opened = machine_.fs().open(machine_.files().path(given_names_.back()));
            ASSERT_TRUE(opened.ok()) << opened.status().message();
            given_.push_back(opened.value());
        }
    }

    uint64_t run_programs(Stream& second) {
        machine_.scratch().clear();
        RandomProgram one(machine_, names_, given_, given_names_, prng_);
        RandomProgram other(machine_, names_, given_, given_names_, prng_);
        const bool both = prng_.below(3) == 0;
        std::optional<Sweep> sweep;
        if (on_gpu() && shape_.page_size <= 8192) {
            sweep.emplace(machine_, "sweep" + std::to_string(sweeps_++));
        }
        one.generate(kCallsPerProgram / (both ? 6 : 3));
        if (both) other.generate(kCallsPerProgram / 6);
        one.views_of_others(other.views_max());
        other.views_of_others(one.views_max());
        if (sweep) sweep->start();
        Status status = one.start(machine_.stream());
        EXPECT_TRUE(status.ok()) << status.message();
        if (both) {
            status = other.start(second);
            EXPECT_TRUE(status.ok()) << status.message();
        }
        status = machine_.stream().synchronize(kPatience);
        EXPECT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        status = second.synchronize(kPatience);
        EXPECT_TRUE(status.ok()) << status.message() << machine_.device().diagnosis();
        if (sweep) sweep->check();
        if (::testing::Test::HasFailure()) return 0;
        Expected left;
        EXPECT_EQ(one.check(&left), "");
        if (both) {
            EXPECT_EQ(other.check(&left), "");
        }
        auto found = machine_.fs().reclaim();
        EXPECT_TRUE(found.ok()) << found.status().message();
        EXPECT_EQ(found.value().descriptors, left.descriptors);
        EXPECT_EQ(found.value().views, left.views);
        EXPECT_EQ(machine_.broken_invariant(), 0);
        return one.step_count() + (both ? other.step_count() : 0);
    }

    base::Prng prng_;
    const Shape shape_;
    Machine machine_;
    std::vector<std::string> names_, given_names_;
    std::vector<Descriptor> given_;
    int sweeps_ = 0;
};

TEST(RandomPrograms, EqualFlatBytes) {
    const uint64_t calls_wanted = testing::effort(10'000, 3000, 1'000'000);
    const uint64_t only = number_from("PENSTOCK_SEED", 0);
    uint64_t calls = 0;
    for (uint64_t seed = only != 0 ? only : 1; calls < calls_wanted; ++seed) {
        const uint64_t made = Life(seed).run();
        ASSERT_FALSE(HasFailure()) << "PENSTOCK_SEED=" << seed << " replays this program alone";
        calls += made;
        if (only != 0) break;
    }
    RecordProperty("calls", std::to_string(calls));
}

}  // namespace
}  // namespace penstock::system_test
