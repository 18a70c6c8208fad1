#include "file/host_window.h"

#include "backend/backend.h"
#include "base/check.h"

namespace penstock::file {

HostWindow::HostWindow(Device device, uint32_t chunk_size, uint32_t slab_chunks)
    : device_(std::move(device)),
      chunk_size_(chunk_size),
      slab_chunks_(slab_chunks),
      chunks_({.chunk_size = chunk_size, .slab_chunks = slab_chunks}) {}

Result<std::unique_ptr<HostWindow>> HostWindow::create(const Device& device, uint32_t chunk_size,
                                                       uint32_t slab_chunks, uint32_t slabs) {
    std::unique_ptr<HostWindow> made(new HostWindow(device, chunk_size, slab_chunks));
    const uint64_t slab_size = uint64_t{slab_chunks} * chunk_size;
    for (uint32_t i = 0; i < slabs; ++i) {
        if (Status s = made->arena_.reserve(i, slab_size); !s.ok()) return s;
        auto slab = made->arena_.take(i);
        if (!slab.ok()) return slab.status();
        made->chunks_.add_slab(0);
    }
    // Copies to memory that is not pinned are slower, and right.
    while (made->pinned_ < slabs &&
           device.port()->pin(made->arena_.slab(made->pinned_), slab_size).ok())
        ++made->pinned_;
    return made;
}

HostWindow::~HostWindow() {
    for (uint32_t i = 0; i < pinned_; ++i) device_.port()->unpin(arena_.slab(i));
}

void HostWindow::add_file(chunk_cache::FileId file) {
    // Both caches give and take back numbers in the same order.
    const auto added = chunks_.add_file();
    PENSTOCK_CHECK(added.ok() && added.value() == file, "a file has one number");
}

void HostWindow::remove_file(chunk_cache::FileId file) {
    chunks_.drop(file, 0, ~0ull);
    PENSTOCK_CHECK(chunks_.remove_file(file).ok(), "nobody copies chunks of an idle file");
}

}  // namespace penstock::file
