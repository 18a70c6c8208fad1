#include "preemption/product.h"

namespace penstock::workloads {
namespace {

constexpr uint8_t kPoison = 0xA5;  // of buffers and results before a run

// The file of product_kernels.h: a record for each tile of the result.
std::vector<float> make_records(const std::vector<float>& a, const std::vector<float>& b,
                                unsigned order, unsigned tile) {
    std::vector<float> records;
    const unsigned tiles = order / tile;
    records.reserve(size_t{tiles} * tiles * order * 2 * tile);
    for (unsigned block = 0; block < tiles * tiles; ++block) {
        const size_t row = size_t{block / tiles} * tile, column = size_t{block % tiles} * tile;
        for (unsigned k = 0; k < order; ++k) {
            for (unsigned i = 0; i < tile; ++i) records.push_back(a[(row + i) * order + k]);
            for (unsigned i = 0; i < tile; ++i) records.push_back(b[(column + i) * order + k]);
        }
    }
    return records;
}

class Product : public Workload {
public:
    explicit Product(const ProductOptions& options) : options_(options) {}

    Status create(const Site& site) {
        const unsigned order = options_.order;
        const size_t count = size_t{order} * order;
        std::vector<float> a(count), b(count);
        Draw draw(options_.seed);
        for (float& element : a) element = static_cast<float>(draw.below(16)) - 8;
        for (float& element : b) element = static_cast<float>(draw.below(16)) - 8;
        expected_ = product_reference(a, b, order);
        for (float& element : expected_) element *= static_cast<float>(options_.repeat);
        records_ = make_records(a, b, order, options_.tile);
        Status status = file_.write(site, records_.data(), records_.size() * sizeof(float));
        if (status.ok()) status = panels_.allocate(*site.device, records_.size());
        if (status.ok()) status = result_.allocate(*site.device, count);
        if (status.ok()) status = failures_.allocate(*site.device, 1);
        job_ = {site.files->device_handle(),
                file_.descriptor(),
                order,
                options_.repeat,
                true,
                panels_.data(),
                result_.data(),
                failures_.data()};
        return status;
    }

    Status prepare(Stream& stream, Part part) override {
        Status status = part == Part::kCompute
                            ? panels_.upload(stream, records_)
                            : stream.fill(panels_.data(), kPoison, panels_.size());
        if (status.ok()) status = stream.fill(result_.data(), kPoison, result_.size());
        if (status.ok()) status = stream.fill(failures_.data(), 0, failures_.size());
        return status;
    }

    Status launch(Stream& stream, Part part) override {
        ProductJob job = job_;
        job.reads = part != Part::kCompute;
        if (part == Part::kReads) job.repeat = 0;
        return launch_product(stream, options_.form, options_.tile, job);
    }

    Result<uint64_t> count_wrong(Stream& stream, Part part) override {
        auto failures = failures_.download(stream);
        if (!failures.ok()) return failures.status();
        uint64_t wrong = failures.value()[0];
        const bool in_memory = options_.form != ProductForm::kEightReadsShared;
        if (part == Part::kReads && in_memory) {
            auto panels = panels_.download(stream);
            if (!panels.ok()) return panels.status();
            wrong += count_different(panels.value(), records_);
        }
        auto result = result_.download(stream);
        if (!result.ok()) return result.status();
        const std::vector<float> zeros(part == Part::kReads ? expected_.size() : 0);
        return wrong + count_different(result.value(), part == Part::kReads ? zeros : expected_);
    }

    uint64_t read_size() const override { return panels_.size(); }
    Descriptor file() const override { return file_.descriptor(); }
    uint64_t block_count() const override {
        const uint64_t tiles = options_.order / options_.tile;
        return tiles * tiles;
    }

    [[nodiscard]] const ProductOptions& options() const { return options_; }
    [[nodiscard]] const ProductJob& job() const { return job_; }

private:
    ProductOptions options_;
    std::vector<float> records_, expected_;
    InputFile file_;
    DeviceArray<float> panels_, result_;
    DeviceArray<unsigned long long> failures_;
    ProductJob job_;
};

}  // namespace

std::vector<float> product_reference(const std::vector<float>& a, const std::vector<float>& b,
                                     unsigned order) {
    std::vector<float> product(size_t{order} * order);
    for (size_t row = 0; row < order; ++row) {
        for (size_t column = 0; column < order; ++column) {
            float sum = 0;
            for (size_t k = 0; k < order; ++k) sum += a[row * order + k] * b[column * order + k];
            product[row * order + column] = sum;
        }
    }
    return product;
}

Status launch_with_backoff(Stream& stream, Workload& product) {
    const auto& one = static_cast<const Product&>(product);
    return launch_product_with_backoff(stream, one.options().form, one.options().tile, one.job());
}

Status PersistentProduct::launch(Stream& stream, unsigned blocks,
                                 const std::vector<Workload*>& products) {
    list_.clear();
    for (Workload* product : products) list_.push_back(static_cast<const Product*>(product)->job());
    const ProductOptions& options = static_cast<const Product*>(products.front())->options();
    Status status;
    if (jobs_.count() != list_.size()) {
        jobs_ = {};
        next_ = {};
        status = jobs_.allocate(stream.device(), list_.size());
        if (status.ok()) status = next_.allocate(stream.device(), 1);
    }
    if (status.ok()) status = jobs_.upload(stream, list_);
    if (status.ok()) status = stream.fill(next_.data(), 0, next_.size());
    if (!status.ok()) return status;
    return launch_persistent_product(stream, blocks, options.form, options.tile, jobs_.data(),
                                     static_cast<unsigned>(list_.size()), next_.data());
}

Result<std::unique_ptr<Workload>> make_product(const Site& site, const ProductOptions& options) {
    const bool tiled = (options.tile == 32 || options.tile == 64) && options.order > 0 &&
                       options.order % options.tile == 0;
    // 64 * order * repeat is the largest sum; floats hold integers up to 2^24.
    if (!tiled || uint64_t{options.order} * options.repeat > 1 << 18)
        return Status(EINVAL, "make_product", "order, tile or repeat is out of range");
    auto product = std::make_unique<Product>(options);
    if (const Status status = product->create(site); !status.ok()) return status;
    return std::unique_ptr<Workload>(std::move(product));
}

}  // namespace penstock::workloads
