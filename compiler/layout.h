// Places saved values: values that no point saves together may share words.
#pragma once

namespace penstock::compiler {

struct Frame;

constexpr unsigned kWordSize = 4;
constexpr unsigned kSharedAlignment = 16;

// Gives each part of the frame its place, and the frame its sizes. Large values are placed first.
void lay_out(Frame& frame);

}  // namespace penstock::compiler
