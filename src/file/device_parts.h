// Pieces of a file that go from or to the memory of several devices: those of each device make one
// part, and all parts move at once.
#pragma once

#include <algorithm>
#include <vector>

#include "file/file_below.h"

namespace penstock::file {

// The pieces of a run that one device has, in the order of the file.
template <class Piece>
struct Part {
    uint32_t device = 0;
    std::vector<Piece> pieces;
    Future moving;
};

template <class Piece>
Part<Piece>& part_of(std::vector<Part<Piece>>& parts, uint32_t device) {
    const auto found = std::ranges::find(parts, device, &Part<Piece>::device);
    if (found != parts.end()) return *found;
    parts.push_back({.device = device, .pieces = {}, .moving = {}});
    return parts.back();
}

// Adds a piece, or lengthens the last one if the new one follows it in memory and in the file:
// storage takes long pieces better.
template <class Piece>
void add_piece(Part<Piece>& part, std::byte* memory, uint64_t size, uint64_t offset) {
    if (!part.pieces.empty()) {
        auto& [last, last_size, last_offset] = part.pieces.back();
        if (static_cast<const std::byte*>(last) + last_size == memory &&
            last_offset + last_size == offset) {
            last_size += size;
            return;
        }
    }
    part.pieces.push_back({memory, size, offset});
}

// Starts a part on the threads of its device.
inline Status start(const FileBelow& below, Part<ReadPiece>& part) {
    const auto file = below.on(part.device);
    if (!file.ok()) return file.status();
    auto begun = file.value().preadv(part.pieces, file.value().options().reading);
    if (begun.ok()) part.moving = begun.value();
    return begun.status();
}
inline Status start(const FileBelow& below, Part<WritePiece>& part) {
    const auto file = below.on(part.device);
    if (!file.ok()) return file.status();
    auto begun = file.value().pwritev(part.pieces, file.value().options().writing);
    if (begun.ok()) part.moving = begun.value();
    return begun.status();
}
inline Result<uint64_t> move(const FileBelow& below, const Part<ReadPiece>& part) {
    const auto file = below.on(part.device);
    if (!file.ok()) return file.status();
    return file.value().readv(part.pieces, file.value().options().reading);
}
inline Result<uint64_t> move(const FileBelow& below, const Part<WritePiece>& part) {
    const auto file = below.on(part.device);
    if (!file.ok()) return file.status();
    return file.value().writev(part.pieces, file.value().options().writing);
}

// Moves all parts at once, the last one with the help of this thread. `moved` gets how many bytes
// of each; on an error it is not complete.
template <class Piece>
Status move_all(const FileBelow& below, std::vector<Part<Piece>>& parts,
                std::vector<uint64_t>* moved) {
    Status status;
    size_t begun = 0;
    while (status.ok() && begun + 1 < parts.size()) {
        status = start(below, parts[begun]);
        if (status.ok()) ++begun;
    }
    Result<uint64_t> last = uint64_t{0};
    if (status.ok()) {
        last = move(below, parts.back());
        status = last.status();
    }
    for (size_t i = 0; i < begun; ++i) {
        const auto one = parts[i].moving.result();
        if (!one.ok()) status = one.status();
        moved->push_back(one.ok() ? one.value() : 0);
    }
    moved->push_back(last.ok() ? last.value() : 0);
    return status;
}

}  // namespace penstock::file
