// Fills a report from the analyses of a kernel.
#pragma once

#include <memory>
#include <vector>

#include "compiler/frame.h"
#include "compiler/report.h"

namespace penstock::compiler {

KernelReport make_report(const SourceText& text, const Kernel& kernel, const Frame& frame,
                         const std::vector<std::unique_ptr<Body>>& bodies);

}  // namespace penstock::compiler
