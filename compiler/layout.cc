// First-fit placement of saved values.
#include "compiler/layout.h"

#include <algorithm>
#include <vector>

#include "compiler/frame.h"

namespace penstock::compiler {

namespace {

bool meet(const SavedPart& a, const SavedPart& b) {
    return std::any_of(a.points.begin(), a.points.end(),
                       [&](unsigned point) { return b.points.count(point) != 0; });
}

// Places `parts`, each in units of `unit` bytes, and returns the end in units.
unsigned place(std::vector<SavedPart*> parts, unsigned unit) {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const SavedPart* a, const SavedPart* b) { return a->size > b->size; });
    unsigned end = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        const unsigned length = (parts[i]->size + unit - 1) / unit;
        unsigned at = 0;
        for (bool moved = true; moved;) {
            moved = false;
            for (size_t j = 0; j < i; ++j) {
                const unsigned other_end = parts[j]->place + (parts[j]->size + unit - 1) / unit;
                const bool apart = at + length <= parts[j]->place || at >= other_end;
                if (apart || !meet(*parts[i], *parts[j])) continue;
                at = other_end;
                moved = true;
            }
        }
        parts[i]->place = at;
        end = std::max(end, at + length);
    }
    return end;
}

}  // namespace

void lay_out(Frame& frame) {
    std::vector<SavedPart*> thread, block, shared;
    for (SavedPart& part : frame.parts)
        (part.shared ? shared : part.per_block ? block : thread).push_back(&part);
    frame.thread_words = place(thread, kWordSize);
    frame.block_words = place(block, kWordSize);
    frame.shared_size = place(shared, kSharedAlignment) * kSharedAlignment;
    for (SavedPart* part : shared) part->place *= kSharedAlignment;
}

}  // namespace penstock::compiler
