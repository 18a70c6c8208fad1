#include "preemption/hotspot.h"

#include <algorithm>

namespace penstock::workloads {
namespace {

class Heat : public Workload {
public:
    explicit Heat(const HeatOptions& options) : options_(options) {}

    Status create(const Site& site) {
        const size_t count = static_cast<size_t>(options_.columns) *
                             static_cast<size_t>(options_.rows);
        Draw draw(options_.seed);
        start_.resize(count);
        power_.resize(count);
        for (float& temperature : start_) temperature = 320 + 20 * draw.unit();
        for (float& watts : power_) watts = draw.unit();
        expected_ = heat_reference(start_, power_, options_.columns, options_.steps, HeatRates());
        Status status = device_power_.allocate(*site.device, count);
        for (DeviceArray<float>& temperature : temperature_)
            if (status.ok()) status = temperature.allocate(*site.device, count);
        job_.columns = options_.columns;
        job_.rows = options_.rows;
        job_.power = device_power_.data();
        return status;
    }

    Status prepare(Stream& stream, Part /*part*/) override {
        constexpr uint8_t kPoison = 0xA5;
        Status status = device_power_.upload(stream, power_);
        if (status.ok()) status = temperature_[0].upload(stream, start_);
        if (status.ok())
            status = stream.fill(temperature_[1].data(), kPoison, temperature_[1].size());
        return status;
    }

    Status launch(Stream& stream, Part part) override {
        if (part == Part::kReads) return {ENOTSUP, "HotSpot", "it does not read"};
        size_t from = 0;
        for (int step = 0; step < options_.steps; step += options_.steps_per_launch, from ^= 1) {
            HeatJob job = job_;
            job.steps = steps_of_launch(step);
            job.from = temperature_[from].data();
            job.to = temperature_[from ^ 1].data();
            const Status status = launch_heat(stream, options_.cells, options_.point, job);
            if (!status.ok()) return status;
        }
        return {};
    }

    Result<uint64_t> count_wrong(Stream& stream, Part /*part*/) override {
        const int launches = (options_.steps + options_.steps_per_launch - 1) /
                             options_.steps_per_launch;
        auto temperature = temperature_[launches % 2].download(stream);
        if (!temperature.ok()) return temperature.status();
        return count_different(temperature.value(), expected_);
    }

    uint64_t block_count() const override {
        uint64_t count = 0;
        for (int step = 0; step < options_.steps; step += options_.steps_per_launch)
            count += heat_grid(options_.columns, options_.rows, steps_of_launch(step),
                               options_.cells)
                         .count();
        return count;
    }

private:
    [[nodiscard]] int steps_of_launch(int step) const {
        return std::min(options_.steps_per_launch, options_.steps - step);
    }

    HeatOptions options_;
    std::vector<float> start_, power_, expected_;
    DeviceArray<float> device_power_, temperature_[2];
    HeatJob job_;
};

}  // namespace

std::vector<float> heat_reference(std::vector<float> temperature, const std::vector<float>& power,
                                  int columns, int steps, const HeatRates& rates) {
    const auto width = static_cast<size_t>(columns);
    const size_t height = temperature.size() / width;
    std::vector<float> next(temperature.size());
    for (int step = 0; step < steps; ++step) {
        for (size_t row = 0; row < height; ++row) {
            for (size_t column = 0; column < width; ++column) {
                const size_t at = row * width + column;
                const HeatNeighbours near{temperature[row > 0 ? at - width : at],
                                          temperature[row + 1 < height ? at + width : at],
                                          temperature[column > 0 ? at - 1 : at],
                                          temperature[column + 1 < width ? at + 1 : at]};
                next[at] = heat_step(temperature[at], near, power[at], rates);
            }
        }
        temperature.swap(next);
    }
    return temperature;
}

Result<std::unique_ptr<Workload>> make_heat(const Site& site, const HeatOptions& options) {
    const bool known = options.cells == 1 || options.cells == 2 || options.cells == 4 ||
                       options.cells == 8;
    if (!known || options.columns < 1 || options.rows < 1 || options.steps < 1 ||
        options.steps_per_launch < 1 || options.steps_per_launch > kHeatStepsMax)
        return Status(EINVAL, "make_heat", "columns, rows, cells or steps is out of range");
    auto heat = std::make_unique<Heat>(options);
    if (const Status status = heat->create(site); !status.ok()) return status;
    return std::unique_ptr<Workload>(std::move(heat));
}

}  // namespace penstock::workloads
