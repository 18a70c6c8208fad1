// Patterns of access with known programs, for tests and benchmarks: those of the slides and papers,
// and random ones of the classes that the detector knows. Not part of the library's interface.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "access/cursor.h"
#include "access/program.h"

namespace penstock::access::patterns {

inline Affine along(int64_t base, std::array<int64_t, kDepthMax> per_loop = {}) {
    return {base, per_loop, {}};
}

inline Node access(const Affine& offset, const Affine& size) {
    Node node;
    node.offset = offset;
    node.size = size;
    return node;
}

inline Node loop(const Affine& trips, uint32_t body) {
    Node node;
    node.kind = NodeKind::kLoop;
    node.body = body;
    node.trips = trips;
    return node;
}

inline Node unit(int64_t offset, int64_t size, std::vector<Delta> deltas, const Affine& trips) {
    Node node;
    node.kind = NodeKind::kDeltas;
    node.offset = along(offset);
    node.size = along(size);
    node.deltas = std::move(deltas);
    node.trips = trips;
    return node;
}

struct Pattern {
    std::string name;
    std::vector<Node> nodes;
};

// Outer iteration k = 1..`outer` of the out-of-core LU decomposition of SC'08.
inline std::vector<Node> lu(int64_t outer) {
    return {loop(along(outer), 4), access(along(2 * 524544, {524544}), along(524544)),
            loop(along(1, {1}), 1), access(along(524544, {0, 524544}), along(518272, {0, -4096})),
            access(along(0), along(522368))};
}

// The patterns of the slides and of the papers, as they are meant: the printed figures that
// contradict themselves (a fixed stride's request of 2048 bytes, a tile of 10,240,000) corrected.
inline std::vector<Pattern> golden() {
    constexpr int64_t kKiB = 1024;
    std::vector<Pattern> all;
    const auto put = [&](const char* name, std::vector<Node> nodes) {
        all.push_back({name, std::move(nodes)});
    };
    put("contiguous", {loop(along(200), 1), access(along(0, {64 * kKiB}), along(64 * kKiB))});
    put("fixed-stride", {loop(along(300), 1), access(along(4096, {8192}), along(2048))});
    put("negative-stride",
        {loop(along(100), 1), access(along(1 << 30, {-256 * kKiB}), along(64 * kKiB))});
    put("size-ramp", {loop(along(50), 1), access(along(0, {kKiB * kKiB}), along(4096, {4096}))});
    put("size-ramp-down",
        {loop(along(50), 1), access(along(0, {kKiB * kKiB}), along(512 * kKiB, {-4096}))});
    put("2d-strided", {loop(along(20), 2), loop(along(10), 1),
                       access(along(0, {10 * kKiB * kKiB, 128 * kKiB}), along(4096))});
    put("3d-strided", {loop(along(5), 3), loop(along(6), 2), loop(along(7), 1),
                       access(along(100, {1 << 24, 1 << 20, 1 << 12}), along(512))});
    put("4d-strided",
        {loop(along(3), 4), loop(along(4), 3), loop(along(5), 2), loop(along(3), 1),
         access(along(1 << 30, {1 << 28, 1 << 24, -(1 << 20), 1 << 12}), along(512))});
    put("negative-2d", {loop(along(20), 2), loop(along(8), 1),
                        access(along(1 << 30, {1 << 20, -8192}), along(8192))});
    put("contiguous-and-stride",
        {loop(along(40), 1), access(along(0, {4096}), along(4096)), loop(along(30), 1),
         access(along(1 << 24, {65536}), along(4096))});
    put("mpi-tile-io", {access(along(3 * int64_t{10240000}), along(10240000))});
    put("tiles-100x100", {loop(along(5), 2), loop(along(100), 1),
                          access(along(0, {100 * kKiB, 500 * kKiB}), along(100 * kKiB))});
    put("btio-steps", {loop(along(40), 2), loop(along(26), 1),
                       access(along(5308416, {42448320, 1632320}), along(2040))});
    put("btio-cells", {loop(along(10), 3), loop(along(4), 2), loop(along(25), 1),
                       access(along(0, {42448320, 10612080, 81600}), along(1020))});
    put("lu", lu(125));
    put("lu-9", lu(9));
    put("triangle-down", {loop(along(30), 2), loop(along(40, {-1}), 1),
                          access(along(0, {1 << 20, 4096}), along(4096))});
    put("triangle-up-3", {loop(along(30), 2), loop(along(3, {3}), 1),
                          access(along(0, {1 << 24, 8192}), along(4096))});
    put("header-and-rows",
        {loop(along(25), 3), access(along(0, {4096}), along(128)), loop(along(12), 1),
         access(along(1 << 20, {1 << 20, 65536}), along(32 * kKiB))});
    put("sequence-in-loop",
        {loop(along(33), 3), access(along(0, {100}), along(100)),
         access(along(1 << 20, {300}), along(60)), access(along(1 << 28, {-700}), along(70))});
    put("interleaved-2", {loop(along(64), 2), access(along(0, {4096}), along(4096)),
                          access(along(1 << 24, {8192}), along(8192))});
    put("interleaved-4",
        {loop(along(64), 4), access(along(0, {4096}), along(4096)),
         access(along(1 << 24, {8192}), along(8192)), access(along(1 << 26, {-4096}), along(512)),
         access(along(1 << 28, {100}), along(100))});
    put("hpdc13", {unit(5, 1, {{2, 0}, {3, 0}}, along(2))});
    put("delta-unit-7",
        {unit(0, 4096, {{5, 0}, {9, 0}, {70, 0}, {3, 0}, {-20, 0}, {11, 0}, {400, 0}}, along(20))});
    std::vector<Delta> longest;
    for (int64_t i = 0; i < int64_t{kPeriodMax}; ++i) longest.push_back({4096 + i * i * 64, 0});
    put("delta-unit-32", {unit(0, 4096, longest, along(9))});
    put("delta-unit-sizes", {unit(64, 100, {{100, 20}, {300, -20}, {50, 0}}, along(12))});
    put("reread", {loop(along(50), 1), access(along(4096), along(4096))});
    return all;
}

// One of them; empty: there is none of that name.
inline std::vector<Node> named(const std::string& name) {
    for (const Pattern& pattern : golden()) {
        if (pattern.name == name) return pattern.nodes;
    }
    return {};
}

// The accesses of a program, for rank 0.
inline std::vector<Access> expand(const std::vector<Node>& nodes) {
    Program program;
    program.nodes = nodes;
    Cursor cursor(program);
    std::vector<Access> out;
    while (const std::optional<Access> next = cursor.next()) out.push_back(*next);
    return out;
}

// A random program of the classes that can be detected, each loop turning at least three times.
class Generator {
public:
    explicit Generator(uint64_t seed) : random_(seed) {}

    std::vector<Node> program() {
        std::vector<Node> nodes;
        switch (below(6)) {
            case 0:
                delta_unit(&nodes);
                break;
            case 1:
                interleaved(&nodes);
                break;
            case 2:
                nest(&nodes, 0, depth(3));
                nest(&nodes, 0, depth(2));
                break;
            default:
                nest(&nodes, 0, depth(kDepthMax));
        }
        return nodes;
    }

private:
    uint64_t below(uint64_t limit) { return random_() % limit; }
    int64_t between(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low + 1)));
    }
    size_t depth(size_t most) { return 1 + below(most); }

    Affine offset(size_t loops) {
        Affine value = along(between(1LL << 40, 1LL << 41));
        for (size_t d = 0; d < loops; ++d) value.per_loop[d] = between(-(1LL << 30), 1LL << 30);
        return value;
    }
    Affine size(size_t loops) {
        Affine value = along(between(1 << 16, 1 << 20));
        if (below(4) == 0 && loops > 0) value.per_loop[below(loops)] = between(-512, 512);
        return value;
    }

    // A loop at `level` with `levels` more loops inside, itself included.
    void nest(std::vector<Node>* out, size_t level, size_t levels) {
        const size_t at = out->size();
        Affine trips = along(between(3, levels > 2 ? 5 : 9));
        if (level > 0 && below(3) == 0) trips.per_loop[below(level)] = between(0, 2);
        out->push_back(loop(trips, 0));
        const uint64_t before = below(3) == 0 ? between(1, 2) : 0;
        const uint64_t behind = levels > 1 && below(3) == 0 ? between(1, 2) : 0;
        for (uint64_t i = 0; i < before; ++i)
            out->push_back(access(offset(level + 1), size(level + 1)));
        if (levels > 1) {
            nest(out, level + 1, levels - 1);
        } else {
            out->push_back(access(offset(level + 1), size(level + 1)));
        }
        for (uint64_t i = 0; i < behind; ++i)
            out->push_back(access(offset(level + 1), size(level + 1)));
        (*out)[at].body = static_cast<uint32_t>(out->size() - at - 1);
    }

    void interleaved(std::vector<Node>* out) {
        const auto streams = static_cast<uint32_t>(between(2, 4));
        out->push_back(loop(along(between(3, 60)), streams));
        for (uint32_t i = 0; i < streams; ++i) out->push_back(access(offset(1), size(1)));
    }

    void delta_unit(std::vector<Node>* out) {
        std::vector<Delta> deltas(static_cast<size_t>(between(2, kPeriodMax)));
        for (Delta& delta : deltas) delta = {between(-(1 << 30), 1 << 30), 0};
        out->push_back(
            unit(1LL << 40, between(1, 1 << 20), std::move(deltas), along(between(3, 9))));
    }

    std::mt19937_64 random_;
};

}  // namespace penstock::access::patterns
