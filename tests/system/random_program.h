// Random programs: several blocks that open, read, map, look at and close files, and what each of
// their calls must have returned.
//
// The model is the flat bytes of testing::ReferenceFiles: files do not change while kernels run. A
// program is made from a seed alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/prng.h"
#include "system/machine.h"

namespace penstock::system_test {

// A device, a cache and a way of serving, of all sizes and kinds.
Shape random_shape(base::Prng& prng);

// Makes about eight files of all kinds: empty, whole pages, sparse, beyond 4 GiB; their names.
std::vector<std::string> make_files(Machine& machine, base::Prng& prng);

// Changes one file as other programs would: overwrites, cuts, extends, replaces it.
void change_file(Machine& machine, const std::string& name, base::Prng& prng);

// What kernels left behind, as FileSystem::reclaim should report it.
struct Expected {
    uint64_t descriptors = 0;
    uint64_t views = 0;
};

class RandomProgram {
public:
    // `given`: descriptors that the host has opened, of the files in `given_names`.
    RandomProgram(Machine& machine, const std::vector<std::string>& names,
                  const std::vector<Descriptor>& given, const std::vector<std::string>& given_names,
                  base::Prng& prng);

    // At most so many views do its blocks have at once; and how many others may have beside them.
    [[nodiscard]] uint64_t views_max() const;
    void views_of_others(uint64_t count) { views_of_others_ = count; }
    // Up to `step_count` steps over all blocks.
    void generate(uint64_t step_count);
    [[nodiscard]] uint64_t step_count() const;

    Status start(Stream& stream);
    // After the launch: compares every result and every byte. Adds to `left` what should be left.
    // Returns what was wrong with the first wrong step; empty: nothing.
    [[nodiscard]] std::string check(Expected* left) const;

private:
    enum class Hold : uint8_t { kNothing, kOpen, kClosed, kGarbage };
    struct File {
        Hold hold = Hold::kNothing;
        bool given = false;  // by the host: kernels do not close it
        std::string name;
    };
    struct View {
        bool mapped = false;  // or was tried
        std::string name;
        int64_t offset = 0;
        uint64_t size = 0;   // as asked
        int64_t result = 0;  // check only
    };
    struct Block {
        std::vector<Step> steps;
        std::vector<std::string> names;  // of the file of each kOpen and kSet; else empty
        File files[kFilesPerBlock];
        View views[kViewsPerBlock];
        int64_t cursor = 0;  // of the sequential reads of this block
        bool tidy = true;    // closes and unmaps before it ends
    };
    struct Checked;

    void add(Block& block, Step step, std::string name = {});
    bool add_step(Block& block);
    void add_file_step(Block& block, uint32_t index);
    void add_open(Block& block, uint32_t index);
    bool add_read(Block& block, uint32_t index);
    bool add_walk(Block& block, uint32_t index);
    void add_advice(Block& block, uint32_t index);
    bool add_map(Block& block, uint32_t index, uint32_t view);
    void tidy_up(Block& block);
    int64_t pick_offset(const std::string& name, Block& block);
    uint64_t pick_size(const std::string& name, int64_t offset);
    std::byte* take_output(uint64_t size);

    [[nodiscard]] const testing::ReferenceFile* reference(const File& file) const;
    [[nodiscard]] std::string check_step(const Step& step, Checked& state) const;
    [[nodiscard]] std::string check_read(const Step& step, const File& file) const;
    [[nodiscard]] std::string check_map(const Step& step, const File& file, View& view) const;
    [[nodiscard]] std::string check_bytes(const std::string& name, int64_t offset, uint64_t count,
                                          const std::byte* out) const;

    Machine& machine_;
    base::Prng& prng_;
    const std::vector<std::string>& names_;
    const std::vector<Descriptor>& given_;
    const std::vector<std::string>& given_names_;
    std::vector<Block> blocks_;
    BlockSteps* written_ = nullptr;
    uint64_t views_of_others_ = 0;
};

}  // namespace penstock::system_test
