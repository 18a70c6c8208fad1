#include "base/kept_text.h"

#include <mutex>
#include <set>

namespace penstock::base {

const char* kept_text(const std::string& text, const char* otherwise) {
    static std::mutex mutex;
    static auto* texts = new std::set<std::string>;  // never destroyed: errors outlast statics
    const std::string cut = text.substr(0, kKeptTextSizeMax);
    std::lock_guard lock(mutex);
    if (const auto found = texts->find(cut); found != texts->end()) return found->c_str();
    if (texts->size() >= kKeptTextsMax) return otherwise;
    return texts->insert(cut).first->c_str();
}

}  // namespace penstock::base
