// The text of the file that is transformed, as raw tokens, and positions of it as offsets.
//
// Offsets are bytes from the file's start. A part of a macro's expansion has the position of the
// macro's name. Reads the source manager only; one thread.
#pragma once

#include <clang/AST/ASTContext.h>
#include <clang/AST/Stmt.h>
#include <clang/Basic/SourceManager.h>

#include <string>
#include <vector>

namespace penstock::compiler {

struct RawToken {
    unsigned offset = 0, length = 0;
    char first = 0;  // its first character
    [[nodiscard]] unsigned end() const { return offset + length; }
};

struct Span {
    unsigned begin = 0, end = 0;  // [begin, end)
    [[nodiscard]] bool holds(unsigned offset) const { return begin <= offset && offset < end; }
};

class SourceText {
public:
    explicit SourceText(clang::ASTContext& context);

    [[nodiscard]] clang::ASTContext& context() const { return context_; }
    [[nodiscard]] const clang::SourceManager& manager() const { return manager_; }
    [[nodiscard]] const std::string& text() const { return text_; }
    [[nodiscard]] std::string text(Span span) const;
    [[nodiscard]] std::string text(clang::SourceRange range) const { return text(span(range)); }

    // Returns whether the place, or the macro that it comes from, is in the file.
    [[nodiscard]] bool holds(clang::SourceLocation location) const;
    // Returns the offset of a place: for a part of a macro's expansion, of the macro's name.
    [[nodiscard]] unsigned offset(clang::SourceLocation location) const;
    // Returns the offset behind the token at a place, or behind the macro call that it is a part
    // of.
    [[nodiscard]] unsigned end_offset(clang::SourceLocation location) const;
    [[nodiscard]] Span span(clang::SourceRange range) const;
    // Returns the range of a statement with its semicolon, and with the pragmas ahead of it.
    [[nodiscard]] Span statement(const clang::Stmt* statement) const;
    // Returns whether both ends are the text of the file itself, or whole arguments of macros.
    [[nodiscard]] bool is_plain(clang::SourceLocation location) const;
    [[nodiscard]] unsigned line(unsigned offset) const;
    [[nodiscard]] clang::SourceLocation location(unsigned offset) const;

    // Tokens: the first at or behind an offset, the last that begins before it, and the bracket
    // that closes the one at `open`. They return null or the end of the text if there is none.
    [[nodiscard]] const RawToken* token_from(unsigned offset) const;
    [[nodiscard]] const RawToken* token_before(unsigned offset) const;
    [[nodiscard]] unsigned closing(unsigned open) const;
    [[nodiscard]] std::string token_text(const RawToken& token) const {
        return text_.substr(token.offset, token.length);
    }

private:
    [[nodiscard]] unsigned with_pragmas(unsigned begin) const;

    clang::ASTContext& context_;
    const clang::SourceManager& manager_;
    clang::FileID file_;
    std::string text_;
    std::vector<RawToken> tokens_;  // without comments; directives are in it
};

}  // namespace penstock::compiler
