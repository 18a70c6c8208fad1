#include "bench/harness/rounds.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace penstock::bench {

void take_round(base::Prng* prng, std::vector<size_t> sides, std::vector<double>* seconds,
                const RunSide& run_side) {
    for (size_t left = sides.size(); left > 1; --left)
        std::swap(sides[left - 1], sides[prng->below(left)]);
    for (const size_t side : sides) (*seconds)[side] = run_side(side);
}

std::vector<std::vector<double>> take_rounds(base::Prng* prng, size_t sides, unsigned rounds,
                                             const RunSide& run_side) {
    std::vector<size_t> order(sides);
    std::iota(order.begin(), order.end(), size_t{0});
    std::vector<double> seconds(sides);
    std::vector<std::vector<double>> of_side(sides);
    for (unsigned round = 0; round <= rounds; ++round) {
        take_round(prng, order, &seconds, run_side);
        for (size_t side = 0; round > 0 && side < sides; ++side)
            of_side[side].push_back(seconds[side]);
    }
    return of_side;
}

Choice choose_best(base::Prng* prng, size_t rivals, unsigned rounds, const RunSide& run_side) {
    std::vector<size_t> sides(rivals + 1);
    std::iota(sides.begin(), sides.end(), size_t{0});
    std::vector<double> seconds(sides.size());
    std::vector<std::vector<double>> of_rival(rivals);
    Choice choice{std::vector<Pairs>(rivals), 0};
    for (unsigned i = 0; i < rounds; ++i) {
        take_round(prng, sides, &seconds, run_side);
        for (size_t rival = 0; rival < rivals; ++rival) {
            choice.pairs[rival].emplace_back(seconds.back(), seconds[rival]);
            of_rival[rival].push_back(seconds[rival]);
        }
    }
    for (size_t rival = 1; rival < rivals; ++rival)
        if (median(of_rival[rival]) < median(of_rival[choice.best])) choice.best = rival;
    return choice;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values.empty() ? 0 : values[values.size() / 2];
}

double median_gain(const Pairs& pairs) {
    std::vector<double> gains;
    gains.reserve(pairs.size());
    for (const auto& [first, second] : pairs) gains.push_back(second / first);
    return median(std::move(gains));
}

Pairs geometric_means(const std::vector<const Pairs*>& cells) {
    size_t rounds = SIZE_MAX;
    for (const Pairs* cell : cells) rounds = std::min(rounds, cell->size());
    Pairs pairs;
    for (size_t round = 0; round < rounds && !cells.empty(); ++round) {
        double mine = 0, other = 0;
        for (const Pairs* cell : cells) {
            mine += std::log((*cell)[round].first);
            other += std::log((*cell)[round].second);
        }
        const auto count = static_cast<double>(cells.size());
        pairs.emplace_back(std::exp(mine / count), std::exp(other / count));
    }
    return pairs;
}

}  // namespace penstock::bench
