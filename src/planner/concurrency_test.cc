// Goal: on simulated devices whose throughput saturates, falls beyond some depth, changes, or is
// noisy, the depth found is nearly as good as the best fixed one after a bounded number of
// operations, and trials cost next to nothing from then on; whatever it is told, the depth stays in
// its bounds and the same input gives the same depths.
#include "planner/concurrency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "base/prng.h"

namespace penstock::planner {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Bytes a nanosecond with so many operations in flight.
using Curve = std::function<double(double in_flight)>;

Curve saturates(double at, double rate) {
    return [=](double n) { return rate * std::min(1.0, n / at); };
}
// As disks with heads do, and links that lose packets when they are full.
Curve falls(double beyond, double rate, double power) {
    return
        [=](double n) { return rate * (n <= beyond ? n / beyond : std::pow(beyond / n, power)); };
}

// A device and readers that always want `demand` operations in flight.
class Device {
public:
    Device(Curve of, uint64_t seed, double noise = 0)
        : curve(std::move(of)), prng_(seed), noise_(noise) {}

    // Runs `operations`; bytes a nanosecond on the way.
    double run(Concurrency* tuner, uint64_t operations) {
        double ns = 0, bytes = 0;
        for (uint64_t i = 0; i < operations; ++i) {
            const uint32_t allowed = std::min(demand, tuner->limit());
            in_flight_ = std::max(in_flight_, allowed);
            const double took = static_cast<double>(size) / curve(in_flight_) * disturbance();
            ns += took;
            bytes += static_cast<double>(size);
            tuner->saw({1, size, took, in_flight_});
            if (tuner->limit() != last_) ++changes;
            last_ = tuner->limit();
            if (in_flight_ > std::min(demand, last_)) --in_flight_;
        }
        return bytes / ns;
    }
    // The same at the best depth that does not change.
    [[nodiscard]] double best() const {
        double found = 0;
        for (uint32_t n = 1; n <= std::min(demand, Concurrency::kMax); ++n)
            found = std::max(found, curve(n));
        return found;
    }

    Curve curve;
    uint64_t size = kMiB;
    uint32_t demand = 512;
    uint64_t changes = 0;

private:
    // Of single operations, and of weather that lasts for some dozens of them.
    double disturbance() {
        if (noise_ == 0) return 1;
        if (left_ == 0) {
            left_ = 10 + prng_.below(100);
            weather_ = 1 + noise_ * (2 * prng_.fraction() - 1);
        }
        --left_;
        return weather_ * (1 + noise_ * (2 * prng_.fraction() - 1));
    }

    base::Prng prng_;
    const double noise_;
    uint64_t left_ = 0;
    double weather_ = 1;
    uint32_t in_flight_ = 0, last_ = 0;
};

// Operations until it must have settled, and of what is measured then.
constexpr uint64_t kSettling = 5'000, kMeasured = 60'000;

double settled_share(Device* device, Concurrency* tuner, uint64_t settling = kSettling) {
    device->run(tuner, settling);
    return device->run(tuner, kMeasured) / device->best();
}

TEST(Concurrency, FindsWhereADeviceSaturates) {
    for (const double depth : {1, 2, 5, 8, 20, 32, 50, 100, 200}) {
        for (const double rate : {0.1, 0.5, 3.0, 12.0}) {
            Device device(saturates(depth, rate), 1);
            Concurrency tuner;
            const double share = settled_share(&device, &tuner);
            EXPECT_GT(share, 0.95)
                << "depth " << depth << ", " << rate << " bytes/ns; settled at " << tuner.depth();
        }
    }
}

TEST(Concurrency, FindsWhereADeviceGetsSlower) {
    for (const double depth : {1, 2, 3, 5, 8, 11, 24, 70}) {
        for (const double power : {0.2, 0.5, 1.0}) {
            Device device(falls(depth, 0.2, power), 2);
            Concurrency tuner;
            const double share = settled_share(&device, &tuner);
            // A sharp peak may lie between two of the depths that are tried.
            const double least = power < 1 ? 0.9 : 0.87;
            EXPECT_GT(share, least)
                << "depth " << depth << ", power " << power << "; settled at " << tuner.depth();
        }
    }
}

// Nothing is won there, and others wait.
TEST(Concurrency, DoesNotFillTheQueueOfASlowDevice) {
    Device slow(saturates(1.5, 0.1), 3);
    Concurrency tuner;
    EXPECT_GT(settled_share(&slow, &tuner), 0.97);
    EXPECT_LE(tuner.depth(), 4u);
    Device fast(saturates(4, 3.0), 3);
    Concurrency other;
    EXPECT_GT(settled_share(&fast, &other), 0.99);
    EXPECT_GE(other.depth(), 12u) << "where a queue is over soon, it may as well be full";
}

TEST(Concurrency, FollowsADeviceThatChanges) {
    Device device(saturates(60, 3.0), 4);
    Concurrency tuner;
    EXPECT_GT(settled_share(&device, &tuner), 0.95);
    device.curve = falls(3, 0.3, 0.5);
    EXPECT_GT(settled_share(&device, &tuner, 20'000), 0.9) << "settled at " << tuner.depth();
    device.curve = saturates(40, 4.0);
    EXPECT_GT(settled_share(&device, &tuner, 20'000), 0.9) << "settled at " << tuner.depth();
    // No faster than before where it is now, so that nothing but the trials that come now and then
    // can tell.
    const double now = device.curve(tuner.limit());
    device.curve = [now, at = tuner.limit()](double n) { return now * std::min(n / at, 2.0); };
    EXPECT_GT(settled_share(&device, &tuner, 60'000), 0.9) << "settled at " << tuner.depth();
}

TEST(Concurrency, NoiseDoesNotMisleadIt) {
    struct Case {
        const char* name;
        Curve curve;
    };
    const std::vector<Case> cases = {
        {"saturates at 5", saturates(5, 0.5)},  {"saturates at 20", saturates(20, 3)},
        {"saturates at 80", saturates(80, 8)},  {"falls beyond 2", falls(2, 0.15, 0.5)},
        {"falls beyond 8", falls(8, 0.5, 0.3)}, {"falls beyond 24", falls(24, 3, 0.5)}};
    for (const Case& one : cases) {
        double sum = 0, least = 1;
        constexpr uint64_t kSeeds = 20;
        for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
            Device device(one.curve, seed, 0.2);
            // The mean of 1/x over what noise does to x is not 1.
            const double level = [&] {
                Device same(saturates(1, 1), seed, 0.2);
                Concurrency any;
                return same.run(&any, kMeasured);
            }();
            Concurrency tuner;
            const double share = settled_share(&device, &tuner, 4 * kSettling) / level;
            sum += share;
            least = std::min(least, share);
            EXPECT_GT(share, 0.85) << one.name << ", seed " << seed << "; " << tuner.depth();
            EXPECT_LT(device.changes, 600u) << one.name << ", seed " << seed;
        }
        EXPECT_GT(sum / kSeeds, 0.94) << one.name << ", least " << least;
    }
}

// Depths change ever more seldom.
TEST(Concurrency, Settles) {
    Device device(saturates(10, 1), 5, 0.2);
    Concurrency tuner;
    device.run(&tuner, 100'000);
    const uint64_t before = device.changes;
    device.run(&tuner, 200'000);
    const uint64_t later = device.changes - before;
    EXPECT_LT(later, 700u) << before << " in the first 100,000";
}

// Few readers: more than they ask for is no depth, and fewer is tried all the same.
TEST(Concurrency, AsksForNoMoreThanThereIs) {
    Device device(falls(3, 0.5, 0.6), 6);
    device.demand = 7;
    Concurrency tuner;
    EXPECT_GT(settled_share(&device, &tuner), 0.9) << tuner.depth();
    EXPECT_LE(tuner.depth(), 6u);
}

// A trial that nothing can be told of ends.
TEST(Concurrency, InterruptionsEndATrial) {
    Device device(saturates(32, 3), 7);
    Concurrency tuner;
    while (!tuner.trying()) device.run(&tuner, 1);
    for (int i = 0; i < 100 && tuner.trying(); ++i) tuner.interrupt();
    EXPECT_FALSE(tuner.trying());
    EXPECT_EQ(tuner.limit(), Concurrency::kStart);
}

TEST(Concurrency, AnyInputKeepsItInItsBoundsAndItIsDeterministic) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    const double times[] = {0, -1, 1e-300, 1, 1e5, 1e9, 1e300, kInfinity, std::nan("")};
    for (uint64_t seed = 1; seed <= 50; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        base::Prng prng(seed);
        Concurrency a, b;
        for (int i = 0; i < 5000; ++i) {
            Concurrency::Finished finished;
            const bool sane = prng.below(4) != 0;
            finished.operations = sane ? 1 + prng.below(32) : static_cast<uint32_t>(prng.next());
            finished.bytes = sane ? finished.operations * kMiB : prng.next() >> prng.below(64);
            finished.ns = sane ? 1e5 * prng.fraction() : times[prng.below(std::size(times))];
            finished.in_flight = sane ? prng.below(64) : static_cast<uint32_t>(prng.next());
            if (prng.below(50) == 0) a.interrupt(), b.interrupt();
            a.saw(finished), b.saw(finished);
            ASSERT_GE(a.limit(), Concurrency::kMin);
            ASSERT_LE(a.limit(), Concurrency::kMax);
            ASSERT_EQ(a.limit(), b.limit());
        }
        // And it comes back from there.
        Device device(falls(4, 0.2, 0.5), seed);
        EXPECT_GT(settled_share(&device, &a, 60'000), 0.9) << a.limit();
    }
}

}  // namespace
}  // namespace penstock::planner
