// How many direct operations in flight on one device are worth it, found out by trying.
//
// Time is cut into windows of some dozens of operations. As long as nothing is tried, all run at
// one depth. A trial lets another depth and this one take turns, window by window in the order
// ABBA, so that a device or a workload that drifts counts for both, until the mean of the
// (logarithmic) gains tells them apart or no more turns are worth it. Coarse steps come first. A
// step must gain kGainMin; a step down also pays when it costs nothing but shortens a long queue,
// which others wait behind. After each trial that leads nowhere the next one comes later, so that
// once it is settled trials cost next to nothing; a device that changes brings them back.
//
// Pure: no clock, and the same input gives the same depths. One thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace penstock::planner {

class Concurrency {
public:
    static constexpr uint32_t kMin = 1, kMax = 256;
    // 8 to 16 MiB in operations of half a MiB to one: all but the widest devices are busy with
    // that, and some are slower with more.
    static constexpr uint32_t kStart = 16;

    // Operations that are over, with nothing in between that others than the device were slow at.
    struct Finished {
        uint32_t operations = 0;
        uint64_t bytes = 0;
        double ns = 0;           // since the ones before, or since the device had nothing to do
        uint32_t in_flight = 0;  // until now, these among them
    };

    // `start`: the depth at first, or the next below that is ever tried.
    explicit Concurrency(uint32_t start = kStart);

    [[nodiscard]] uint32_t limit() const { return kDepths[rung()]; }
    // The limit when nothing is tried.
    [[nodiscard]] uint32_t depth() const { return kDepths[rung_]; }
    // It is at a depth that is only tried, so that what is seen says little of others.
    [[nodiscard]] bool trying() const { return trial_.on && trial_.challenging; }

    void saw(const Finished& finished);
    // Something came in between: what was seen of this window does not count.
    void interrupt();

private:
    static constexpr std::array<uint32_t, 22> kDepths{
        1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80, 104, 128, 160, 208, 256};
    static constexpr unsigned kRungs = kDepths.size();
    static_assert(kDepths[0] == kMin && kDepths[kRungs - 1] == kMax);

    // What has been seen at one depth.
    struct Window {
        uint64_t operations = 0, bytes = 0;
        double ns = 0;
        double load = 0;    // in flight, summed over operations
        uint32_t peak = 0;  // in flight

        [[nodiscard]] double rate() const { return static_cast<double>(bytes) / ns; }
        [[nodiscard]] double size() const {
            return static_cast<double>(bytes) / static_cast<double>(operations);
        }
        [[nodiscard]] double in_flight() const { return load / static_cast<double>(operations); }
    };

    // Two depths that take turns.
    struct Trial {
        bool on = false;
        bool challenging = false;               // whose turn it is
        unsigned challenger = 0, opponent = 0;  // rungs
        double least = 0;                       // gain that it takes
        unsigned turns = 0, interruptions = 0;
        Window first;  // of a pair
        unsigned pairs = 0;
        double sum = 0, squares = 0;  // of the logarithms of gains
    };

    [[nodiscard]] unsigned rung() const {
        if (!trial_.on) return rung_;
        return trial_.challenging ? trial_.challenger : trial_.opponent;
    }
    void end_window(const Window& window);
    void watch(const Window& window);
    void begin_trial(const Window& window);
    void take_turn(const Window& window);
    void judge();
    void end_trial(bool won);
    void change_depth(uint32_t in_flight);

    unsigned rung_;
    // The best throughput was seen here; at rung_, which may be lower, it was no worse.
    unsigned best_;
    uint32_t in_flight_ = 0;    // lately
    uint64_t passed_over_ = 0;  // operations to come that began at another depth
    Window window_;
    Trial trial_;
    unsigned step_ = 0;                // of kSteps: which trial comes next
    unsigned pause_ = 0, paused_ = 0;  // windows from trial to trial, and since the last
    double usual_ = 0;                 // logarithm of the rate, lately; 0: none yet
    unsigned unusual_ = 0;             // windows in a row that were far from it
};

}  // namespace penstock::planner
