#include "preemption/srad.h"

#include <algorithm>

namespace penstock::workloads {
namespace {

struct Sums {
    float sum = 0, squares = 0;
};

// Adds up one element of each thread of a block as sum_of_block() of srad.cu does.
Sums add_by_halves(std::vector<Sums> sums) {
    for (size_t half = sums.size() / 2; half > 0; half /= 2) {
        for (size_t i = 0; i < half; ++i) {
            sums[i].sum += sums[i + half].sum;
            sums[i].squares += sums[i + half].squares;
        }
    }
    return sums[0];
}

float reference_speckle(const std::vector<float>& image, unsigned blocks) {
    std::vector<Sums> of_threads(kSradThreads);
    const size_t share = image.size() / blocks;
    for (unsigned block = 0; block < blocks; ++block) {
        std::vector<Sums> threads(kSradThreads);
        for (size_t i = 0; i < share; ++i) {
            const float cell = image[block * share + i];
            threads[i % kSradThreads].sum += cell;
            threads[i % kSradThreads].squares += times(cell, cell);
        }
        const Sums partial = add_by_halves(threads);
        of_threads[block % kSradThreads].sum += partial.sum;
        of_threads[block % kSradThreads].squares += partial.squares;
    }
    const Sums all = add_by_halves(of_threads);
    return srad_speckle(all.sum, all.squares, static_cast<float>(image.size()));
}

// Row-major cells of the reference, from an array of tiles and back.
class TileOrder {
public:
    explicit TileOrder(const SradOptions& options)
        : columns_(static_cast<size_t>(options.tile_columns) * kSradTile),
          rows_(static_cast<size_t>(options.tile_rows) * kSradTile) {}

    [[nodiscard]] size_t columns() const { return columns_; }
    [[nodiscard]] size_t rows() const { return rows_; }
    [[nodiscard]] size_t index(size_t row, size_t column) const {
        const size_t tile = row / kSradTile * (columns_ / kSradTile) + column / kSradTile;
        return tile * kSradThreads + row % kSradTile * kSradTile + column % kSradTile;
    }

private:
    size_t columns_, rows_;
};

class Srad : public Workload {
public:
    explicit Srad(const SradOptions& options) : options_(options) {}

    Status create(const Site& site) {
        const size_t tiles = static_cast<size_t>(options_.tile_columns) *
                             static_cast<size_t>(options_.tile_rows);
        image_.resize(tiles * kSradThreads);
        Draw draw(options_.seed);
        for (float& cell : image_) cell = 0.5F + draw.unit();
        expected_ = srad_reference(image_, options_);
        Status status;
        if (options_.reads_file)
            status = file_.write(site, image_.data(), image_.size() * sizeof(float));
        if (status.ok()) status = device_image_.allocate(*site.device, image_.size());
        if (status.ok()) status = coefficient_.allocate(*site.device, image_.size());
        if (status.ok()) status = slopes_.allocate(*site.device, image_.size());
        // The last float is the speckle.
        if (status.ok()) status = sums_.allocate(*site.device, 2 * options_.blocks + 1);
        if (status.ok()) status = failures_.allocate(*site.device, 1);
        job_ = {site.files->device_handle(),
                file_.descriptor(),
                options_.tile_columns,
                options_.tile_rows,
                options_.blocks,
                options_.lambda,
                device_image_.data(),
                coefficient_.data(),
                slopes_.data(),
                sums_.data(),
                sums_.data() + 2 * options_.blocks,
                failures_.data()};
        return status;
    }

    Status prepare(Stream& stream, Part part) override {
        constexpr uint8_t kPoison = 0xA5;
        Status status = reads(part)
                            ? stream.fill(device_image_.data(), kPoison, device_image_.size())
                            : device_image_.upload(stream, image_);
        if (status.ok()) status = stream.fill(coefficient_.data(), kPoison, coefficient_.size());
        if (status.ok()) status = stream.fill(slopes_.data(), kPoison, slopes_.size());
        if (status.ok()) status = stream.fill(sums_.data(), kPoison, sums_.size());
        if (status.ok()) status = stream.fill(failures_.data(), 0, failures_.size());
        return status;
    }

    Status launch(Stream& stream, Part part) override {
        if (part == Part::kReads) return {ENOTSUP, "SRAD", "it does not read alone"};
        Status status;
        for (unsigned i = 0; i < options_.iterations && status.ok(); ++i) {
            status = launch_srad_sums(stream, i == 0 && reads(part), job_);
            if (status.ok()) status = launch_srad_speckle(stream, job_);
            if (status.ok()) status = launch_srad_coefficients(stream, job_);
            if (status.ok()) status = launch_srad_update(stream, job_);
        }
        return status;
    }

    Result<uint64_t> count_wrong(Stream& stream, Part /*part*/) override {
        auto failures = failures_.download(stream);
        if (!failures.ok()) return failures.status();
        auto image = device_image_.download(stream);
        if (!image.ok()) return image.status();
        return failures.value()[0] + count_different(image.value(), expected_);
    }

    uint64_t read_size() const override {
        return options_.reads_file ? image_.size() * sizeof(float) : 0;
    }
    Descriptor file() const override { return file_.descriptor(); }
    uint64_t block_count() const override {
        return uint64_t{options_.iterations} * (3 * options_.blocks + 1);
    }

private:
    [[nodiscard]] bool reads(Part part) const {
        return options_.reads_file && part != Part::kCompute;
    }

    SradOptions options_;
    std::vector<float> image_, expected_;
    InputFile file_;
    DeviceArray<float> device_image_, coefficient_, sums_;
    DeviceArray<SradSlopes> slopes_;
    DeviceArray<unsigned long long> failures_;
    SradJob job_;
};

}  // namespace

std::vector<float> srad_reference(std::vector<float> image, const SradOptions& options) {
    const TileOrder order(options);
    std::vector<float> coefficient(image.size());
    std::vector<SradSlopes> slopes(image.size());
    for (unsigned iteration = 0; iteration < options.iterations; ++iteration) {
        const float speckle = reference_speckle(image, options.blocks);
        for (size_t row = 0; row < order.rows(); ++row) {
            for (size_t column = 0; column < order.columns(); ++column) {
                const size_t at = order.index(row, column);
                const float own = image[at];
                const auto slope = [&](size_t other_row, size_t other_column) {
                    return image[order.index(other_row, other_column)] - own;
                };
                slopes[at] = {slope(row > 0 ? row - 1 : 0, column),
                              slope(std::min(row + 1, order.rows() - 1), column),
                              slope(row, column > 0 ? column - 1 : 0),
                              slope(row, std::min(column + 1, order.columns() - 1))};
                coefficient[at] = srad_coefficient(own, slopes[at], speckle);
            }
        }
        for (size_t row = 0; row < order.rows(); ++row) {
            for (size_t column = 0; column < order.columns(); ++column) {
                const size_t at = order.index(row, column);
                const size_t below = order.index(std::min(row + 1, order.rows() - 1), column);
                const size_t right = order.index(row, std::min(column + 1, order.columns() - 1));
                image[at] = srad_diffused(image[at], slopes[at], coefficient[at],
                                          coefficient[below], coefficient[right], options.lambda);
            }
        }
    }
    return image;
}

Result<std::unique_ptr<Workload>> make_srad(const Site& site, const SradOptions& options) {
    const bool has_tiles = options.tile_columns > 0 && options.tile_rows > 0 && options.blocks > 0;
    if (!has_tiles ||
        static_cast<unsigned>(options.tile_columns * options.tile_rows) % options.blocks != 0)
        return Status(EINVAL, "make_srad", "tile_columns, tile_rows or blocks is out of range");
    auto srad = std::make_unique<Srad>(options);
    if (const Status status = srad->create(site); !status.ok()) return status;
    return std::unique_ptr<Workload>(std::move(srad));
}

}  // namespace penstock::workloads
