// Sentences that are put together at run time and live as long as the program: a Status never frees
// its text. Any thread.
#pragma once

#include <string>

namespace penstock::base {

// Of different sentences that are kept, and of the bytes of one: 256 KiB at most in all.
inline constexpr size_t kKeptTextsMax = 256, kKeptTextSizeMax = 1024;

// Returns `text`, cut at kKeptTextSizeMax bytes, as a string that is never freed; the same one for
// the same text. `otherwise`, a string literal, where kKeptTextsMax sentences are kept already.
const char* kept_text(const std::string& text, const char* otherwise);

}  // namespace penstock::base
