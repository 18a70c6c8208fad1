// Offsets and raw tokens of the file that is transformed.
#include "compiler/source_text.h"

#include <clang/AST/Expr.h>
#include <clang/Lex/Lexer.h>

#include <algorithm>

namespace penstock::compiler {

using clang::SourceLocation;

SourceText::SourceText(clang::ASTContext& context)
    : context_(context),
      manager_(context.getSourceManager()),
      file_(manager_.getMainFileID()),
      text_(manager_.getBufferData(file_).str()) {
    clang::Lexer lexer(file_, manager_.getBufferOrFake(file_), manager_, context.getLangOpts());
    clang::Token token;
    for (bool at_end = false; !at_end;) {
        at_end = lexer.LexFromRawLexer(token);
        if (token.is(clang::tok::eof)) break;
        const unsigned at = manager_.getFileOffset(token.getLocation());
        tokens_.push_back({at, token.getLength(), text_[at]});
    }
}

std::string SourceText::text(Span span) const {
    return span.end <= span.begin ? "" : text_.substr(span.begin, span.end - span.begin);
}

bool SourceText::holds(SourceLocation location) const {
    return location.isValid() && manager_.getFileID(manager_.getExpansionLoc(location)) == file_;
}

unsigned SourceText::offset(SourceLocation location) const {
    // An argument of a macro has a place of its own in the file.
    if (manager_.isMacroArgExpansion(location) && is_plain(location))
        location = manager_.getFileLoc(location);
    return manager_.getFileOffset(manager_.getExpansionLoc(location));
}

unsigned SourceText::end_offset(SourceLocation location) const {
    if (location.isMacroID()) location = manager_.getExpansionRange(location).getEnd();
    const unsigned at = manager_.getFileOffset(location);
    const RawToken* token = token_from(at);
    // `>>` may close two template arguments: the lexer of the text sees one token.
    return token != nullptr && token->offset == at ? token->end() : at + 1;
}

Span SourceText::span(clang::SourceRange range) const {
    const unsigned begin = manager_.getFileOffset(manager_.getExpansionLoc(range.getBegin()));
    return {begin, end_offset(range.getEnd())};
}

Span SourceText::statement(const clang::Stmt* statement) const {
    Span found = span(statement->getSourceRange());
    const bool closed = found.end > 0 &&
                        (text_[found.end - 1] == ';' || text_[found.end - 1] == '}');
    const RawToken* next = token_from(found.end);
    if (!(closed && !llvm::isa<clang::Expr>(statement)) && next != nullptr && next->first == ';')
        found.end = next->end();
    return {with_pragmas(found.begin), found.end};
}

unsigned SourceText::with_pragmas(unsigned begin) const {
    // A pragma that stands on the line before belongs to the statement.
    for (unsigned found = begin;;) {
        const size_t line = text_.rfind('\n', found == 0 ? 0 : found - 1);
        if (line == std::string::npos) return begin;
        const size_t before = line == 0 ? std::string::npos : text_.rfind('\n', line - 1);
        const size_t from = before == std::string::npos ? 0 : before + 1;
        const std::string above = text_.substr(from, line - from);
        const size_t word = above.find_first_not_of(" \t");
        if (text_.find_first_not_of(" \t", line + 1) < found) return begin;
        if (word == std::string::npos || above[word] != '#') return begin;
        const size_t name = above.find_first_not_of(" \t", word + 1);
        if (name == std::string::npos || above.compare(name, 6, "pragma") != 0) return begin;
        found = begin = static_cast<unsigned>(from + word);
    }
}

bool SourceText::is_plain(SourceLocation location) const {
    if (location.isFileID()) return true;
    if (!manager_.isMacroArgExpansion(location)) return false;
    return is_plain(manager_.getImmediateSpellingLoc(location));
}

unsigned SourceText::line(unsigned offset) const { return manager_.getLineNumber(file_, offset); }

SourceLocation SourceText::location(unsigned offset) const {
    return manager_.getLocForStartOfFile(file_).getLocWithOffset(static_cast<int>(offset));
}

const RawToken* SourceText::token_from(unsigned offset) const {
    const auto found = std::lower_bound(
        tokens_.begin(), tokens_.end(), offset,
        [](const RawToken& token, unsigned value) { return token.offset < value; });
    return found == tokens_.end() ? nullptr : &*found;
}

const RawToken* SourceText::token_before(unsigned offset) const {
    const RawToken* next = token_from(offset);
    const size_t index = next == nullptr ? tokens_.size()
                                         : static_cast<size_t>(next - tokens_.data());
    return index == 0 ? nullptr : &tokens_[index - 1];
}

unsigned SourceText::closing(unsigned open) const {
    const RawToken* token = token_from(open);
    int depth = 0;
    for (; token != nullptr && token < tokens_.data() + tokens_.size(); ++token) {
        if (token->length != 1) continue;
        if (token->first == '(' || token->first == '{' || token->first == '[') ++depth;
        if (token->first == ')' || token->first == '}' || token->first == ']') --depth;
        if (depth == 0) return token->offset;
    }
    return static_cast<unsigned>(text_.size());
}

}  // namespace penstock::compiler
