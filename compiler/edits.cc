// Applies edits in the order of the text.
#include "compiler/edits.h"

#include <algorithm>

namespace penstock::compiler {

Edits::Edits(const SourceText& text, std::string presumed_file)
    : text_(text), presumed_file_(std::move(presumed_file)) {}

std::string Edits::line_directive(unsigned offset) const {
    std::string quoted;
    for (const char c : presumed_file_) {
        if (c == '"' || c == '\\') quoted += '\\';
        quoted += c;
    }
    return "\n#line " + std::to_string(text_.line(offset)) + " \"" + quoted + "\"\n";
}

void Edits::insert(unsigned offset, const std::string& text) { replace({offset, offset}, text); }

void Edits::replace(Span span, const std::string& text) { edits_.push_back({span, text}); }

std::string Edits::apply(Span span) const {
    std::vector<const Edit*> inside;
    for (const Edit& edit : edits_)
        if (edit.span.begin >= span.begin && edit.span.end <= span.end) inside.push_back(&edit);
    std::stable_sort(inside.begin(), inside.end(), [](const Edit* a, const Edit* b) {
        if (a->span.begin != b->span.begin) return a->span.begin < b->span.begin;
        // An insertion goes ahead of what is replaced there.
        return (a->span.end == a->span.begin) > (b->span.end == b->span.begin);
    });
    std::string result;
    bool line_is_lost = false;  // behind an edit with line ends
    const auto add_text = [&](unsigned from, unsigned to) {
        if (from == to) return;
        if (line_is_lost) {
            const bool at_line_end = text_.text()[from] == '\n';
            std::string directive = line_directive(at_line_end ? from + 1 : from);
            if (at_line_end) directive.pop_back();
            result += directive + (at_line_end ? "" : indent_at(from));
        }
        line_is_lost = false;
        result += text_.text(Span{from, to});
    };
    unsigned at = span.begin;
    for (const Edit* edit : inside) {
        if (edit->span.begin < at) continue;  // inside of a replaced range
        add_text(at, edit->span.begin);
        result += edit->text;
        at = edit->span.end;
        line_is_lost = line_is_lost || edit->text.find('\n') != std::string::npos;
    }
    add_text(at, span.end);
    return result;
}

std::string Edits::indent_at(unsigned offset) const {
    const size_t line = text_.text().rfind('\n', offset == 0 ? 0 : offset - 1);
    const size_t from = line == std::string::npos ? 0 : line + 1;
    const size_t end = text_.text().find_first_not_of(" \t", from);
    return text_.text().substr(from, std::min<size_t>(end, offset) - from);
}

}  // namespace penstock::compiler
