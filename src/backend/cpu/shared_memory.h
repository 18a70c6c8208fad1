// Finds the static __shared__ variables of a module, so that they can be poisoned when a block
// starts.
//
// language/cuda.h makes them thread-local variables, whose mangled names carry the ABI tag
// `penstock_shared`. A block runs to its end on one OS thread. Their places come from the module's
// ELF symbol table, which also finds variables of template instantiations and needs no linker
// script. A stripped module has no table; its variables keep what the last block left. Any thread
// may call anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::backend::cpu {

inline constexpr uint8_t kPoison = 0xcb;

struct SharedRange {
    size_t offset = 0, size = 0;  // bytes, from the start of the module's thread-local block
};

struct SharedLayout {
    size_t tls_module = 0;  // the dynamic linker's number of the module; 0: none
    std::vector<SharedRange> ranges;
};

// Returns the layout of the module that holds `function`. It is read once and stays valid.
const SharedLayout& shared_layout(const void* function);

// Fills the calling thread's copies of the variables with kPoison.
void poison_shared(const SharedLayout& layout);

}  // namespace penstock::backend::cpu
