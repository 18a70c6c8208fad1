#include "preemption/pieces.h"

namespace penstock::workloads {
namespace {

constexpr uint8_t kPoison = 0xA5;  // of buffers before a run

// What `rounds` rounds do to a number: they multiply it, and add.
struct Rounds {
    uint64_t factor = 1, step = 0;

    explicit Rounds(unsigned rounds) {
        for (unsigned i = 0; i < rounds; ++i) {
            step = pieces_round(step);
            factor *= kPiecesFactor;
        }
    }
    [[nodiscard]] uint64_t of(uint64_t x) const { return x * factor + step; }
};

// The sum of one block's threads over its words.
unsigned long long block_sum(const uint64_t* words, const PiecesOptions& options,
                             const Rounds& rounds) {
    const size_t count = options.piece_size / sizeof(uint64_t);
    unsigned long long all = 0;
    for (unsigned thread = 0; thread < kPiecesThreads; ++thread) {
        uint64_t sum = thread;
        for (unsigned piece = 0; piece < options.pieces; ++piece) {
            for (size_t i = thread; i < count; i += kPiecesThreads)
                sum = sum * kPiecesFactor + words[piece * count + i];
            sum = rounds.of(sum);
        }
        all += sum;
    }
    return all;
}

class PiecesOfFile : public Pieces {
public:
    explicit PiecesOfFile(const PiecesOptions& options) : options_(options) {}

    Status create(const Site& site) {
        const size_t block_words = size_t{options_.pieces} * options_.piece_size / sizeof(uint64_t);
        words_.resize(options_.blocks * block_words);
        Draw draw(options_.seed);
        for (uint64_t& word : words_) word = draw.word();
        const Rounds rounds(options_.rounds);
        for (unsigned block = 0; block < options_.blocks; ++block)
            expected_.push_back(block_sum(&words_[block * block_words], options_, rounds));
        Status status;
        if (options_.reads_file)
            status = file_.write(site, words_.data(), words_.size() * sizeof(uint64_t));
        if (status.ok()) status = bytes_.allocate(*site.device, words_.size());
        if (status.ok()) status = sums_.allocate(*site.device, options_.blocks);
        if (status.ok()) status = failures_.allocate(*site.device, 1);
        if (status.ok() && options_.records_times)
            status = times_.allocate(*site.device, size_t{options_.blocks} * options_.pieces);
        job_ = {site.files->device_handle(),
                file_.descriptor(),
                options_.pieces,
                options_.piece_size,
                options_.rounds,
                true,
                true,
                reinterpret_cast<unsigned char*>(bytes_.data()),
                sums_.data(),
                failures_.data(),
                times_.data()};
        return status;
    }

    Status prepare(Stream& stream, Part part) override {
        Status status = reads(part) ? stream.fill(bytes_.data(), kPoison, bytes_.size())
                                    : bytes_.upload(stream, words_);
        if (status.ok()) status = stream.fill(sums_.data(), 0, sums_.size());
        if (status.ok()) status = stream.fill(failures_.data(), 0, failures_.size());
        return status;
    }

    Status launch(Stream& stream, Part part) override {
        if (part == Part::kReads && !options_.reads_file)
            return {ENOTSUP, "pieces", "this workload has no reads"};
        PiecesJob job = job_;
        job.reads = reads(part);
        job.computes = part != Part::kReads;
        return launch_pieces(stream, options_.blocks, job);
    }

    Result<uint64_t> count_wrong(Stream& stream, Part part) override {
        auto failures = failures_.download(stream);
        if (!failures.ok()) return failures.status();
        auto words = bytes_.download(stream);
        if (!words.ok()) return words.status();
        auto sums = sums_.download(stream);
        if (!sums.ok()) return sums.status();
        uint64_t wrong = failures.value()[0];
        for (size_t i = 0; i < words_.size(); ++i) wrong += words.value()[i] != words_[i] ? 1 : 0;
        for (size_t i = 0; i < expected_.size(); ++i)
            wrong += sums.value()[i] != (part == Part::kReads ? 0 : expected_[i]) ? 1 : 0;
        return wrong;
    }

    Result<std::vector<PieceTimes>> times(Stream& stream) const override {
        if (!options_.records_times) return std::vector<PieceTimes>();
        return times_.download(stream);
    }

    Descriptor file() const override { return file_.descriptor(); }
    uint64_t read_size() const override { return options_.reads_file ? bytes_.size() : 0; }
    uint64_t block_count() const override { return options_.blocks; }

private:
    [[nodiscard]] bool reads(Part part) const {
        return options_.reads_file && part != Part::kCompute;
    }

    PiecesOptions options_;
    std::vector<uint64_t> words_;
    std::vector<unsigned long long> expected_;
    InputFile file_;
    DeviceArray<uint64_t> bytes_;
    DeviceArray<unsigned long long> sums_, failures_;
    DeviceArray<PieceTimes> times_;
    PiecesJob job_;
};

}  // namespace

Result<std::unique_ptr<Pieces>> make_pieces(const Site& site, const PiecesOptions& options) {
    if (options.blocks == 0 || options.pieces == 0 || options.piece_size == 0 ||
        options.piece_size % (sizeof(uint64_t) * kPiecesThreads) != 0)
        return Status(EINVAL, "make_pieces", "blocks, pieces or piece_size is out of range");
    auto made = std::make_unique<PiecesOfFile>(options);
    if (const Status status = made->create(site); !status.ok()) return status;
    return std::unique_ptr<Pieces>(std::move(made));
}

}  // namespace penstock::workloads
