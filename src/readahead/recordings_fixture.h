// The recordings that simulations replay, predictors that need no detector, and the table.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "readahead/simulation_fixture.h"

namespace penstock::readahead {

inline constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;

inline Recording recording_of(const char* name, const std::vector<access::Access>& accesses,
                              uint64_t think_ns) {
    Recording recording{name, 0, {}};
    for (const access::Access& one : accesses) {
        const auto end = static_cast<uint64_t>(one.offset + one.size);
        const uint64_t pages = (end + kSimulationPage - 1) / kSimulationPage;
        recording.file_size = std::max(recording.file_size, pages * kSimulationPage);
        recording.accesses.push_back({0, one, think_ns});
    }
    return recording;
}

inline Recording sequential() {
    std::vector<access::Access> all;
    for (int64_t i = 0; i < 2000; ++i) all.push_back({i * 64 * kKiB, 64 * kKiB});
    return recording_of("sequential", all, 100'000);
}

inline Recording small_sequential() {
    std::vector<access::Access> all;
    for (int64_t i = 0; i < 16000; ++i) all.push_back({i * 4 * kKiB, 4 * kKiB});
    return recording_of("sequential 4K", all, 10'000);
}

inline Recording strided() {
    std::vector<access::Access> all;
    for (int64_t i = 0; i < 1500; ++i) all.push_back({i * 256 * kKiB, 64 * kKiB});
    return recording_of("strided", all, 100'000);
}

inline Recording backward() {
    std::vector<access::Access> all;
    for (int64_t i = 1500; i-- > 0;) all.push_back({i * 64 * kKiB, 64 * kKiB});
    return recording_of("backward", all, 100'000);
}

// Tiles of a matrix: 40 rows of 32 pieces, in 3 planes.
inline Recording nested() {
    std::vector<access::Access> all;
    for (int64_t i = 0; i < 3; ++i) {
        for (int64_t j = 0; j < 40; ++j) {
            for (int64_t k = 0; k < 16; ++k) {
                all.push_back({i * 128 * kMiB + j * 3 * kMiB + k * 48 * kKiB, 16 * kKiB});
            }
        }
    }
    return recording_of("nested", all, 100'000);
}

// Out-of-core LU as in the paper on I/O signatures, a quarter of its sizes and half its columns.
inline Recording lu() {
    std::vector<access::Access> all;
    for (int64_t k = 1; k <= 62; ++k) {
        all.push_back({(k + 1) * 131136, 131136});
        for (int64_t j = 1; j <= k; ++j) all.push_back({j * 131136, 129568 - 1024 * (j - 1)});
        all.push_back({0, 130592});
    }
    return recording_of("LU", all, 200'000);
}

inline Recording shuffled(uint64_t seed) {
    std::vector<access::Access> all;
    for (int64_t i = 0; i < 2000; ++i) all.push_back({i * 64 * kKiB, 64 * kKiB});
    base::Prng prng(seed);
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[prng.below(i)]);
    return recording_of("shuffled", all, 100'000);
}

// Records of 4 KiB, the n-th of them wanted as 1/n^0.9, scattered over 256 MiB.
inline Recording zipf(uint64_t seed) {
    constexpr size_t kRecords = 65536;
    std::vector<double> sums(kRecords);
    double sum = 0;
    for (size_t i = 0; i < kRecords; ++i) {
        sum += 1 / std::pow(static_cast<double>(i + 1), 0.9);
        sums[i] = sum;
    }
    base::Prng prng(seed);
    std::vector<access::Access> all;
    for (int i = 0; i < 20000; ++i) {
        const auto at = std::upper_bound(sums.begin(), sums.end(), prng.fraction() * sum);
        const auto record = static_cast<uint64_t>(at - sums.begin());
        const auto place = static_cast<int64_t>(record * 40503 % kRecords);
        all.push_back({place * 4096, 4096});
    }
    return recording_of("Zipf", all, 50'000);
}

// Runs of 1 to 40 pieces of 4 KiB at random places: where one ends cannot be told.
inline Recording runs(uint64_t seed) {
    base::Prng prng(seed);
    std::vector<access::Access> all;
    while (all.size() < 20000) {
        auto offset = static_cast<int64_t>(prng.below(1 << 20)) * 4096;
        for (uint64_t left = 1 + prng.below(40); left > 0; --left, offset += 4096) {
            all.push_back({offset, 4096});
        }
    }
    return recording_of("runs", all, 50'000);
}

// 512 blocks of a kernel, 32 of them resident, each reading 1 MiB of its own in pieces of 32 KiB;
// whichever block is ready goes next.
inline Recording gpu_blocks(uint64_t seed) {
    constexpr int64_t kPieces = 32, kPiece = 32 * kKiB;
    base::Prng prng(seed);
    Recording recording{"GPU blocks", 512 * kMiB, {}};
    std::vector<std::pair<int64_t, int64_t>> resident;  // block, piece
    int64_t next = 0;
    for (; next < 32; ++next) resident.emplace_back(next, 0);
    while (!resident.empty()) {
        const size_t at = prng.below(resident.size());
        auto& [block, piece] = resident[at];
        recording.accesses.push_back({static_cast<uint64_t>(block),
                                      {block * kPieces * kPiece + piece * kPiece, kPiece},
                                      20'000});
        if (++piece < kPieces) continue;
        if (next < 512) {
            resident[at] = {next++, 0};
        } else {
            resident.erase(resident.begin() + static_cast<std::ptrdiff_t>(at));
        }
    }
    return recording;
}

// Knows a stream's accesses, and tells them after it has seen `learning` of them.
class ScriptedPredictor : public Predictor {
public:
    ScriptedPredictor(std::vector<access::Access> script, size_t learning)
        : script_(std::move(script)), learning_(learning) {}

    void observe(const access::Access& access, uint64_t /*time_ns*/) override {
        // An access that is not in the script leaves it where it is.
        if (seen_ < script_.size() && access == script_[seen_]) ++seen_;
    }
    size_t predict_from(size_t skip, std::span<access::Access> out) const override {
        if (seen_ < learning_ || silent_) return 0;
        size_t count = 0;
        for (size_t at = seen_ + skip; count < out.size() && at < script_.size(); ++at) {
            out[count++] = script_[at];
        }
        return count;
    }
    void be_silent(bool silent) { silent_ = silent; }
    // Another future from here on.
    void rewrite(std::vector<access::Access> script) {
        script_ = std::move(script);
        seen_ = 0;
        learning_ = 0;
    }

private:
    std::vector<access::Access> script_;
    size_t learning_;
    size_t seen_ = 0;
    bool silent_ = false;
};

// Sure of itself, and wrong: the worst predictor that random accesses may meet.
class GuessingPredictor : public Predictor {
public:
    GuessingPredictor(uint64_t seed, uint64_t file_size) : prng_(seed), file_size_(file_size) {}
    void observe(const access::Access& access, uint64_t /*time_ns*/) override {
        size_ = access.size;
        now_ = prng_.next();
    }
    size_t predict_from(size_t skip, std::span<access::Access> out) const override {
        if (size_ == 0) return 0;
        for (size_t i = 0; i < out.size(); ++i) {
            base::Prng at(now_ + skip + i);
            out[i] = {static_cast<int64_t>(at.below(file_size_)), size_};
        }
        return out.size();
    }

private:
    base::Prng prng_;
    uint64_t file_size_;
    uint64_t now_ = 0;
    int64_t size_ = 0;
};

// Each stream of a recording told by its own script.
inline PredictorSource scripts_of(const Recording& recording, size_t learning) {
    std::map<uint64_t, std::vector<access::Access>> scripts;
    for (const RecordedAccess& one : recording.accesses) {
        scripts[one.stream].push_back(one.access);
    }
    return [scripts, learning](uint64_t stream) {
        return std::make_unique<ScriptedPredictor>(scripts.at(stream), learning);
    };
}

// A line of the table, without its end.
inline std::string figures_heading() {
    return "stream                 policy      time ms  stall ms  accuracy  coverage  wasted MB"
           "  requests";
}
inline std::string figures_line(const std::string& stream, Policy policy, const Figures& figures) {
    std::array<char, 160> text;
    std::snprintf(text.data(), text.size(), "%-22s %-9s %9.1f %9.1f %9.3f %9.3f %10.2f %9llu",
                  stream.c_str(), name(policy), static_cast<double>(figures.time_ns) * 1e-6,
                  static_cast<double>(figures.stall_ns) * 1e-6, figures.accuracy(),
                  figures.coverage(), static_cast<double>(figures.wasted_size()) * 1e-6,
                  static_cast<unsigned long long>(figures.requests));
    return text.data();
}
// The same for a note.
inline std::string figures_note(const Figures& figures) {
    std::array<char, 160> text;
    std::snprintf(text.data(), text.size(), "%.1f ms, accuracy %.3f, coverage %.3f, %.2f MB wasted",
                  static_cast<double>(figures.time_ns) * 1e-6, figures.accuracy(),
                  figures.coverage(), static_cast<double>(figures.wasted_size()) * 1e-6);
    return text.data();
}

}  // namespace penstock::readahead
