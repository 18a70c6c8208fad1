// A mix for a GPU, whose places the workloads of seed 001 do not fill: a kernel whose blocks read,
// launched first, holds all registers; a kernel that computes waits behind it.
#include <algorithm>
#include <iterator>
#include <memory>

#include "bench/harness/rounds.h"
#include "bench/preempt/figures.h"
#include "bench/preempt/rig.h"
#include "bench/preempt/rounds.h"
#include "preemption/gate.h"
#include "preemption/pieces.h"

namespace penstock::bench {
namespace {

using workloads::Part;

constexpr Disk kFastDisk{2000, 1000};  // 2 ms, 1 GB/s
constexpr unsigned kBusyRounds = 100'000;

// Blocks that compute, and nothing to check: gate.cu's arithmetic is that of a load.
class Busy : public workloads::Workload {
public:
    explicit Busy(const Device& device) : device_(device) {
        out_ = static_cast<float*>(need(device_.allocate(kBlocksMax * sizeof(float)), "memory"));
    }
    ~Busy() override { device_.free(out_); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

    void set_blocks(unsigned blocks) { blocks_ = std::min(blocks, kBlocksMax); }
    Status prepare(Stream& /*stream*/, Part /*part*/) override { return {}; }
    Status launch(Stream& stream, Part /*part*/) override {
        return workloads::keep_busy(stream, blocks_, kBusyRounds, out_);
    }
    Result<uint64_t> count_wrong(Stream& stream, Part /*part*/) override {
        if (Status status = stream.synchronize(); !status.ok()) return status;
        return uint64_t{0};
    }
    uint64_t block_count() const override { return blocks_; }

private:
    static constexpr unsigned kBlocksMax = 1 << 20;
    Device device_;
    float* out_ = nullptr;
    unsigned blocks_ = 1024;
};

std::vector<double> larger(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> result = a;
    for (size_t i = 0; i < a.size(); ++i) result[i] = std::max(a[i], b[i]);
    return result;
}

}  // namespace

void measure_gpu_mix(Report& report, const Arguments& arguments) {
    const Device device = need(Device::open(arguments.device), "device");
    if (device.host_addressable() || !wanted(arguments, "gpu-mix")) return;
    MixRig rig(arguments.device, 0, kFastDisk);
    workloads::PiecesOptions pieces;
    pieces.blocks = arguments.smoke ? 64 : 1024;
    pieces.pieces = 4;
    pieces.rounds = 100;
    rig.add(std::unique_ptr<workloads::Workload>(need(make_pieces(rig.site(), pieces), "pieces")),
            "pieces");
    auto busy_made = std::make_unique<Busy>(rig.device());
    Busy& busy = *busy_made;
    rig.add(std::unique_ptr<workloads::Workload>(std::move(busy_made)), "computation");

    // As much computation as the reads take.
    const double io = rig.run({1, false}, Part::kReads, WaitMode::kSpin).seconds;
    (void)rig.run({0, true}, Part::kCompute, WaitMode::kSpin);
    const double compute = rig.run({0, true}, Part::kCompute, WaitMode::kSpin).seconds;
    busy.set_blocks(static_cast<unsigned>(static_cast<double>(busy.block_count()) * io / compute));

    struct Side {
        WaitMode mode;
        MixRig::Mix mix;
        Part part;
    };
    const Side sides[] = {{WaitMode::kAdaptive, {1, false}, Part::kReads},
                          {WaitMode::kSpin, {0, true}, Part::kCompute},
                          {WaitMode::kSpin, {1, true}, Part::kAll},
                          {WaitMode::kAdaptive, {1, true}, Part::kAll},
                          {WaitMode::kSeedPolicy, {1, true}, Part::kAll}};
    bool right = true;
    uint64_t left = 0;
    base::Prng prng{5};
    const auto taken = take_rounds(&prng, std::size(sides), some_rounds(arguments), [&](size_t i) {
        const Side& side = sides[i];
        const MixRun run = rig.run(side.mix, side.part, side.mode);
        right = right && run.right;
        if (side.mode == WaitMode::kAdaptive && side.part == Part::kAll) left = run.preemption.left;
        return run.seconds;
    });
    const auto add = [&](const char* name, const char* against, const std::vector<double>& ours,
                         const std::vector<double>& baseline) {
        Row row;
        row.name = name;
        row.against = against;
        row.verified = right;
        row.bytes = rig.read_size({1, true});
        for (size_t i = 0; i < ours.size(); ++i) row.pairs.emplace_back(ours[i], baseline[i]);
        row.note = std::to_string(pieces.blocks) + " blocks with 4 reads of 16 KiB each, " +
                   std::to_string(busy.block_count()) + " blocks that compute; I " +
                   std::to_string(median(taken[0]) * 1e3) + " ms, C " +
                   std::to_string(median(taken[1]) * 1e3) + " ms; blocks left " +
                   std::to_string(left) + " times; " + kFastDisk.describe();
        report.add(std::move(row));
    };
    const std::vector<double> bound = larger(taken[0], taken[1]);
    add("gpu-mix", "bound", taken[3], bound);
    add("gpu-mix", "spin", taken[3], taken[2]);
    add("gpu-mix", "seed-policy", taken[3], taken[4]);
    add("gpu-mix-spin", "bound", taken[2], bound);
}

}  // namespace penstock::bench
