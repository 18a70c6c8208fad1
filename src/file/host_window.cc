#include "file/host_window.h"

#include "base/check.h"

namespace penstock::file {

HostWindow::HostWindow(uint32_t chunk_size, uint32_t slab_chunks)
    : chunk_size_(chunk_size),
      slab_chunks_(slab_chunks),
      chunks_({.chunk_size = chunk_size, .slab_chunks = slab_chunks}) {}

Result<std::unique_ptr<HostWindow>> HostWindow::create(uint32_t chunk_size, uint32_t slab_chunks,
                                                       uint32_t slabs) {
    std::unique_ptr<HostWindow> made(new HostWindow(chunk_size, slab_chunks));
    for (uint32_t i = 0; i < slabs; ++i) {
        auto slab = made->arena_.take(i, uint64_t{slab_chunks} * chunk_size);
        if (!slab.ok()) return slab.status();
        made->chunks_.add_slab(0);
    }
    return made;
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
