// Insertions and replacements in a part of the text, applied to a copy of it.
//
// Insertions at one offset keep the order in which they were made. A replacement is made once for
// a range; insertions inside of it are lost.
#pragma once

#include <string>
#include <vector>

#include "compiler/source_text.h"

namespace penstock::compiler {

class Edits {
public:
    Edits(const SourceText& text, std::string presumed_file);

    // Text with line ends is followed by a #line directive, so that what follows keeps its line.
    void insert(unsigned offset, const std::string& text);
    void replace(Span span, const std::string& text);
    // Returns the text of a span with the edits in it.
    [[nodiscard]] std::string apply(Span span) const;
    // Returns "#line N "file"" with a line end before and behind.
    [[nodiscard]] std::string line_directive(unsigned offset) const;
    // Returns the blanks that the line of an offset begins with.
    [[nodiscard]] std::string indent_at(unsigned offset) const;
    [[nodiscard]] unsigned size() const { return static_cast<unsigned>(edits_.size()); }

private:
    struct Edit {
        Span span;
        std::string text;
    };

    const SourceText& text_;
    std::string presumed_file_;
    std::vector<Edit> edits_;
};

}  // namespace penstock::compiler
