// The kernel finds the end of the file and writes there in one step, which no other append can come
// between. Afterwards the descriptor's position tells where that was.
#include "storage/append.h"

#include <unistd.h>

#include <cerrno>

#include "base/file_size_signal.h"
#include "storage/reach.h"
#include "storage/scatter.h"
#include "storage/system_calls.h"

namespace penstock::storage {
namespace {

// Holds a file's place for appends while the object exists.
class AppendTurn {
public:
    explicit AppendTurn(File* file) : file_(file), descriptor_(file->begin_append()) {}
    ~AppendTurn() { file_->end_append(); }
    AppendTurn(const AppendTurn&) = delete;
    AppendTurn& operator=(const AppendTurn&) = delete;

    [[nodiscard]] int descriptor() const { return descriptor_; }

private:
    File* const file_;
    const int descriptor_;
};

ssize_t append_once(int descriptor, const Scatter::Call& call, int flags) {
    constexpr off_t kAtPosition = -1;
    const iovec whole{call.base, call.size};
    const bool one = call.count == 0;
    return system::pwritev2(descriptor, one ? &whole : call.pieces,
                            one ? 1 : static_cast<int>(call.count), kAtPosition, flags);
}

// Appends what a short call has left, too: at the end that the file has then.
void append_all(const AppendTurn& turn, Reach* reach, Scatter* scatter, Completion* completion) {
    while (reach->error == 0 && !scatter->done()) {
        const ssize_t got = append_once(turn.descriptor(), scatter->next(), reach->flags);
        if (got == 0) {
            completion->error = EIO;
            return;
        }
        if (got < 0) {
            if (errno == EINTR || reach->again_without_flags(errno)) continue;
            completion->error = errno;
            return;
        }
        const auto size = static_cast<uint64_t>(got);
        if (completion->bytes == 0) {
            const off_t end = system::lseek(turn.descriptor(), 0, SEEK_CUR);
            completion->offset = static_cast<uint64_t>(end) - size;
        }
        completion->bytes += size;
        scatter->advance(size);
    }
    completion->error = reach->error;
}

}  // namespace

Completion append(const Operation& operation) {
    Completion completion{.cookie = operation.cookie};
    uint64_t size = 0;
    completion.error = validate(operation, &size);
    if (completion.error == 0 && operation.route != Route::kCached) completion.error = EOPNOTSUPP;
    if (completion.error != 0 || size == 0) return completion;
    Reach reach(operation);
    Scatter scatter(operation.pieces, size);
    base::FileSizeSignal signal;
    append_all(AppendTurn(operation.file), &reach, &scatter, &completion);
    if (completion.error == EFBIG) signal.take();
    Identity now;
    if (completion.bytes == 0 && operation.file->stat(&now).ok()) completion.offset = now.size;
    return completion;
}

}  // namespace penstock::storage
