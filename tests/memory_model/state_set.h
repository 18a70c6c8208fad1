// A set of 64-bit hashes: open addressing, grows by doubling. For the millions of states of one
// exploration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace penstock::memory_model {

class StateSet {
public:
    // False: it was there.
    bool insert(uint64_t hash) {
        if (hash == 0) hash = 1;  // 0 marks a free slot
        if (2 * (count_ + 1) > slots_.size()) grow();
        if (!place(hash)) return false;
        ++count_;
        return true;
    }

private:
    bool place(uint64_t hash) {
        for (size_t i = hash;; ++i) {
            uint64_t& slot = slots_[i & (slots_.size() - 1)];
            if (slot == hash) return false;
            if (slot == 0) {
                slot = hash;
                return true;
            }
        }
    }
    void grow() {
        std::vector<uint64_t> old(slots_.size() * 2);
        old.swap(slots_);
        for (const uint64_t hash : old) {
            if (hash != 0) place(hash);
        }
    }

    std::vector<uint64_t> slots_ = std::vector<uint64_t>(1024);
    size_t count_ = 0;
};

}  // namespace penstock::memory_model
