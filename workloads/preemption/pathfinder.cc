#include "preemption/pathfinder.h"

#include <algorithm>

namespace penstock::workloads {
namespace {

constexpr uint8_t kPoison = 0x7A;  // of costs before a run

class Path : public Workload {
public:
    explicit Path(const PathOptions& options) : options_(options) {}

    Status create(const Site& site) {
        const size_t columns = static_cast<size_t>(options_.columns);
        wall_.resize(columns * static_cast<size_t>(options_.rows));
        Draw draw(options_.seed);
        for (int& cost : wall_) cost = static_cast<int>(draw.below(10));
        first_.assign(wall_.begin(), wall_.begin() + options_.columns);
        expected_ = path_reference(wall_, options_.columns);
        Status status;
        if (options_.reads_file)
            status = file_.write(site, wall_.data(), wall_.size() * sizeof(int));
        if (status.ok()) status = device_wall_.allocate(*site.device, wall_.size());
        for (DeviceArray<int>& costs : costs_)
            if (status.ok()) status = costs.allocate(*site.device, columns);
        if (status.ok()) status = failures_.allocate(*site.device, 1);
        job_.fs = site.files->device_handle();
        job_.file = file_.descriptor();
        job_.wall = device_wall_.data();
        job_.columns = options_.columns;
        job_.failures = failures_.data();
        return status;
    }

    Status prepare(Stream& stream, Part part) override {
        Status status = costs_[0].upload(stream, first_);
        if (status.ok()) status = stream.fill(costs_[1].data(), kPoison, costs_[1].size());
        if (status.ok()) status = stream.fill(failures_.data(), 0, failures_.size());
        if (!status.ok() || reads(part)) return status;
        return device_wall_.upload(stream, wall_);
    }

    Status launch(Stream& stream, Part part) override {
        if (part == Part::kReads) return {ENOTSUP, "PathFinder", "it does not read alone"};
        size_t from = 0;
        for (int row = 1; row < options_.rows; row += options_.rows_per_launch, from ^= 1) {
            PathJob job = job_;
            job.first_row = row;
            job.rows = std::min(options_.rows_per_launch, options_.rows - row);
            job.from = costs_[from].data();
            job.to = costs_[from ^ 1].data();
            const Status status = launch_path(stream, reads(part), job);
            if (!status.ok()) return status;
        }
        return {};
    }

    Result<uint64_t> count_wrong(Stream& stream, Part /*part*/) override {
        auto failures = failures_.download(stream);
        if (!failures.ok()) return failures.status();
        auto costs = costs_[launch_count() % 2].download(stream);
        if (!costs.ok()) return costs.status();
        return failures.value()[0] + count_different(costs.value(), expected_);
    }

    // Without the columns that two blocks read.
    uint64_t read_size() const override {
        return options_.reads_file ? (wall_.size() - first_.size()) * sizeof(int) : 0;
    }
    Descriptor file() const override { return file_.descriptor(); }
    uint64_t block_count() const override {
        uint64_t count = 0;
        for (int row = 1; row < options_.rows; row += options_.rows_per_launch)
            count += path_blocks(options_.columns,
                                 std::min(options_.rows_per_launch, options_.rows - row));
        return count;
    }

private:
    [[nodiscard]] bool reads(Part part) const {
        return options_.reads_file && part != Part::kCompute;
    }
    [[nodiscard]] int launch_count() const {
        return (options_.rows - 2 + options_.rows_per_launch) / options_.rows_per_launch;
    }

    PathOptions options_;
    std::vector<int> wall_, first_, expected_;
    InputFile file_;
    DeviceArray<int> device_wall_, costs_[2];
    DeviceArray<unsigned long long> failures_;
    PathJob job_;
};

}  // namespace

std::vector<int> path_reference(const std::vector<int>& wall, int columns) {
    const auto width = static_cast<size_t>(columns);
    std::vector<int> costs(wall.begin(), wall.begin() + columns), next(width);
    for (size_t row = 1; row * width < wall.size(); ++row) {
        for (size_t column = 0; column < width; ++column) {
            int cheapest = costs[column];
            if (column > 0) cheapest = std::min(cheapest, costs[column - 1]);
            if (column + 1 < width) cheapest = std::min(cheapest, costs[column + 1]);
            next[column] = cheapest + wall[row * width + column];
        }
        costs.swap(next);
    }
    return costs;
}

Result<std::unique_ptr<Workload>> make_path(const Site& site, const PathOptions& options) {
    if (options.columns < 1 || options.rows < 2 || options.rows_per_launch < 1 ||
        options.rows_per_launch > kPathRowsMax)
        return Status(EINVAL, "make_path", "columns, rows or rows_per_launch is out of range");
    auto path = std::make_unique<Path>(options);
    if (const Status status = path->create(site); !status.ok()) return status;
    return std::unique_ptr<Workload>(std::move(path));
}

}  // namespace penstock::workloads
