// Completes the pages that a server has read: their completion words, and their way to a device
// whose memory the host cannot address. server.h states the threads.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "penstock/device/atomic.cuh"
#include "service/page_sender.h"
#include "service/server.h"

namespace penstock::service {

using device::SystemWords;

// Completes a run that was read completely, if its pages are in their frames or their teams copy
// them. Returns false otherwise.
bool Server::complete_whole(const Run& run) {
    if (!direct_ && !is_pulled(requests_[run.first].kind)) return false;  // all are alike
    for (size_t i = run.first; i < run.first + run.count; ++i) {
        const Request& request = requests_[i];
        if (!direct_) {
            answer(request, sender_->page(places_[i]), !run.source->hot());
            continue;
        }
        uint64_t* words = shared_.state->completions + request.frame;
        const Completion word = make_completion(request.generation, 0,
                                                static_cast<uint32_t>(page_size_));
        for (uint32_t k = 0; k < request.page_count; ++k)
            SystemWords::store(words[k], word, site::kComplete);
        shared_.device->notify(words, request.page_count);
    }
    return true;
}

// Completes one page: stores its completion word, or leaves that to the sender if the page must
// still be copied. `bytes` bytes are valid. The rest of the page lies beyond the end of the file,
// unless `error` says why it is missing.
void Server::complete(const PageOf& which, uint64_t bytes, int error) {
    const Request& request = requests_[which.request];
    if (bytes < page_size_) {
        const uint64_t begin = (request.page + which.page) * page_size_;
        // In a file that is written here, bytes that the host does not have were not written back
        // yet, or never written: they are zeros. Only GPU threads know the end of such a file, and
        // no error lies beyond it.
        const bool written = shared_.files->is_written(request.file_slot);
        const uint64_t size = shared_.files->size_of(request.file_slot);
        const uint64_t expected = size > begin ? std::min(page_size_, size - begin) : 0;
        if (written ? error == 0 : bytes >= expected) {
            error = 0;
        } else if (error == 0) {
            activity_.store(Activity::kStorage, std::memory_order_release);  // may wait
            // Without this, GPU threads would take the missing bytes for zeros.
            const Status shrunk = shared_.files->shrink(request, begin, bytes);
            if (!shrunk.ok())
                error = shrunk.error_number() == ESTALE ? static_cast<int>(kErrorClosed) : EIO;
            activity_.store(Activity::kServing, std::memory_order_release);
        }
        std::memset(destination(which) + bytes, 0, page_size_ - bytes);
    }
    if (error != 0 && error != static_cast<int>(kErrorClosed)) counters_.failed_pages.add(1);
    const Completion word = make_completion(request.generation, static_cast<uint32_t>(error),
                                            static_cast<uint32_t>(bytes));
    if (!direct_) {
        sender_->word(places_[which.request] + which.page) = word;
        return;
    }
    SystemWords::store(shared_.state->completions[request.frame + which.page], word,
                       site::kComplete);
}

// Wakes the threads that wait for completed pages. Pages that must still be copied go to the
// sender.
void Server::announce(const PageOf& first, size_t pages) {
    PageOf page = first;
    for (size_t done = 0; done < pages;) {
        const Request& request = requests_[page.request];
        const size_t length = std::min<size_t>(pages - done, request.page_count - page.page);
        const auto frame = static_cast<FrameIndex>(request.frame + page.page);
        if (direct_) {
            shared_.device->notify(shared_.state->completions + frame, length);
        } else {
            sender_->add(frame, places_[page.request] + page.page, length);
        }
        done += length;
        page = {page.request + 1, 0};
    }
}

void Server::stop_sending() {
    shared_.abort(EIO, "pages could not be announced to the device");
    stopped_.store(true, std::memory_order_relaxed);
}

void Server::send_pages() {
    if (direct_) return;
    send_answers();
    activity_.store(Activity::kStorage, std::memory_order_release);
    if (!sender_->send().ok()) stop_sending();
    due_ns_ = base::monotonic_ns() + shared_.send_period_ns;
    activity_.store(Activity::kServing, std::memory_order_release);
}

}  // namespace penstock::service
