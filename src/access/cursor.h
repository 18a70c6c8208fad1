// Walks through the accesses of a program, for one rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "access/program.h"

namespace penstock::access {

// Keeps a reference to the program, which must not change meanwhile. Allocates at construction
// only. Accesses that cannot be (negative offset or size, beyond 2^63) are passed over by none:
// validate() has refused such programs before.
class Cursor {
public:
    explicit Cursor(const Program& program, uint64_t rank = 0);

    // The next access; none behind the last, and none at a random node (random() says so).
    std::optional<Access> next();
    // Up to out.size() of them.
    size_t next(std::span<Access> out);
    // Goes to the access with this number (0: the first). False: there are fewer; the cursor is
    // then behind the last. O(depth) for loops whose trips do not depend on others, O(depth log
    // trips) else.
    bool seek(uint64_t position);
    // Number of the access that next() returns.
    [[nodiscard]] uint64_t position() const { return position_; }
    // How many accesses there are; none: a random node without an end.
    [[nodiscard]] std::optional<uint64_t> count() const;
    // Whether any access of the program touches this byte. O(depth) for nests (the strides of a
    // loop are divided out), O(list) for lists.
    [[nodiscard]] bool contains(uint64_t byte) const;
    // At a random node: nothing can be told until seek() goes elsewhere.
    [[nodiscard]] bool random() const { return random_; }

private:
    const Program& program_;
    uint64_t rank_ = 0;
    uint64_t position_ = 0;
    bool random_ = false;
};

}  // namespace penstock::access
