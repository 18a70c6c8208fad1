// Writes the preemptible form of a kernel: K__body, K__preemptible, and its registration.
#pragma once

#include <string>

#include "compiler/frame.h"
#include "compiler/kernels.h"
#include "compiler/position_copies.h"

namespace penstock::compiler {

class TwinWriter {
public:
    TwinWriter(const SourceText& text, std::string presumed_file, Diagnostics& diagnostics)
        : text_(text), presumed_file_(std::move(presumed_file)), diagnostics_(diagnostics) {}

    // Returns the offset behind the kernel, where its other form stands.
    [[nodiscard]] unsigned place(const Kernel& kernel) const;
    // Returns the text of the other form.
    [[nodiscard]] std::string write(const Kernel& kernel, const Frame& frame,
                                    PositionCopies& copies);
    // Returns PENSTOCK_PREEMPTIBLE(...) for each instantiation that the file registers.
    [[nodiscard]] static std::string registration(const Kernel& kernel, const Registration& one,
                                                  const Frame& frame);

private:
    [[nodiscard]] bool check(const Kernel& kernel);
    [[nodiscard]] std::string template_arguments(const Kernel& kernel);
    [[nodiscard]] std::string arguments(const Kernel& kernel, Edits& edits);

    const SourceText& text_;
    std::string presumed_file_;
    Diagnostics& diagnostics_;
};

}  // namespace penstock::compiler
