// Finds by trial how many direct operations in flight are best for one device.
// Time is divided into windows of some dozens of operations. Without a trial all operations run at
// one depth. In a trial this depth and another take turns, window by window, in the order ABBA, so
// that a drift of the device or workload affects both. The trial ends when the mean of the
// logarithmic gains decides between them, or when more turns are not worth it. Coarse steps come
// first. A step must gain kGainMin. A step down also wins if it costs nothing and shortens a long
// queue in which other operations wait. After each trial without success the next one comes later,
// so that trials cost next to nothing in a steady state. If the device changes, trials become
// frequent again.
//
// Pure: it reads no clock, and the same input gives the same depths. One thread at a time.
#pragma once

#include <array>
#include <cstdint>

namespace penstock::planner {

class Concurrency {
public:
    static constexpr uint32_t kMin = 1, kMax = 256;
    // 16 operations of half a MiB to one MiB are 8 to 16 MiB. That keeps all but the widest devices
    // busy, and some devices are slower with more.
    static constexpr uint32_t kStart = 16;

    // Operations that have completed. No delay outside the device may lie in between.
    struct Finished {
        uint32_t operations = 0;
        uint64_t bytes = 0;
        double ns = 0;           // since the previous ones, or since the device was idle
        uint32_t in_flight = 0;  // up to now, including these
    };

    // Starts at the depth `start`, or at the next lower depth in kDepths.
    explicit Concurrency(uint32_t start = kStart);

    [[nodiscard]] uint32_t limit() const { return kDepths[rung()]; }
    // Returns the limit without a trial.
    [[nodiscard]] uint32_t depth() const { return kDepths[rung_]; }
    // Returns whether the current depth is on trial. What is measured then says little about other
    // depths.
    [[nodiscard]] bool trying() const { return trial_.on && trial_.challenging; }

    void saw(const Finished& finished);
    // Discards the current window, because something else than the device caused a delay.
    void interrupt();

private:
    static constexpr std::array<uint32_t, 22> kDepths{
        1, 2, 3, 4, 5, 6, 8, 10, 13, 16, 20, 26, 32, 40, 52, 64, 80, 104, 128, 160, 208, 256};
    static constexpr unsigned kRungs = kDepths.size();
    static_assert(kDepths[0] == kMin && kDepths[kRungs - 1] == kMax);

    // Measurements at one depth.
    struct Window {
        uint64_t operations = 0, bytes = 0;
        double ns = 0;
        double load = 0;    // operations in flight, summed over operations
        uint32_t peak = 0;  // most operations in flight

        [[nodiscard]] double rate() const { return static_cast<double>(bytes) / ns; }
        [[nodiscard]] double size() const {
            return static_cast<double>(bytes) / static_cast<double>(operations);
        }
        [[nodiscard]] double in_flight() const { return load / static_cast<double>(operations); }
    };

    // Two depths that take turns.
    struct Trial {
        bool on = false;
        bool challenging = false;               // the challenger's turn, else the opponent's
        unsigned challenger = 0, opponent = 0;  // rungs
        double least = 0;                       // gain that the challenger must reach
        unsigned turns = 0, interruptions = 0;
        Window first;  // the first window of a pair
        unsigned pairs = 0;
        double sum = 0, squares = 0;  // of the logarithms of the gains
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
    // The rung of the best throughput. At rung_, which may be lower, the throughput was no worse.
    unsigned best_;
    uint32_t in_flight_ = 0;    // most recently
    uint64_t passed_over_ = 0;  // completions to ignore, which began at another depth
    Window window_;
    Trial trial_;
    unsigned step_ = 0;                // index into kSteps: the next trial
    unsigned pause_ = 0, paused_ = 0;  // windows between trials, and since the last trial
    double usual_ = 0;                 // logarithm of the recent rate; 0: none yet
    unsigned unusual_ = 0;             // windows in a row with a rate far from usual_
};

}  // namespace penstock::planner
