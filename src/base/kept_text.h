// Sentences that are made at run time and kept until the program ends, because a Status never frees
// its text. Any thread.
#pragma once

#include <string>

namespace penstock::base {

// Limits of the count of different sentences and of the bytes of one: 256 KiB in all.
inline constexpr size_t kKeptTextsMax = 256, kKeptTextSizeMax = 1024;

// Returns `text`, cut at kKeptTextSizeMax bytes, as a string that is never freed. The same text
// gives the same string. Returns `otherwise`, a string literal, if kKeptTextsMax sentences are kept
// already.
const char* kept_text(const std::string& text, const char* otherwise);

}  // namespace penstock::base
